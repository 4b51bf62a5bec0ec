"""What gives a log its structure: tracebacks, summaries of launchers, the end of a run that went well.

Looked for in the same pass as the signatures of causes, and no cause themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "CHAIN",
    "CHECKPOINT",
    "ELASTIC",
    "ENDS_ONLY",
    "EXCEPTION",
    "GAP",
    "MARKERS",
    "MEMBER",
    "NORMAL_END",
    "PREPARING",
    "RESTARTED",
    "RESUMED",
    "STARTED",
    "TRACEBACK",
    "WORLD",
]

TRACEBACK = "structure/traceback"
EXCEPTION = "structure/exception"
CHAIN = "structure/chain"
ELASTIC = "structure/elastic"
NORMAL_END = "structure/normal-end"
RESUMED = "structure/resumed"
RESTARTED = "structure/restarted"
STARTED = "structure/started"
GAP = "structure/gap"
CHECKPOINT = "structure/checkpoint"
PREPARING = "structure/preparing"
MEMBER = "structure/member"
WORLD = "structure/world"

ENDS_ONLY = frozenset({CHECKPOINT, WORLD})
"""Those that may be in many lines of a log, of which the first and the last tell all that is asked."""

MARKERS: Mapping[str, str] = {
    GAP: "airflow-training: lines may be missing here",
    TRACEBACK: r"Traceback \(most recent call last\)",
    # whether it is the first word of its line is for `tracebacks` to see
    EXCEPTION: r"(?:Error|Exception|Interrupt|SystemExit|StopIteration|TimeoutExpired|\.timeout|\.(?:Connect|Read|Write|Pool)Timeout|\.gaierror|\.error"
    r"|\.Empty|exceptions\.[A-Z][A-Za-z]+|[Ee]rror (?:in|during|while|running) [A-Za-z_0-9 ]{1,40})(?::|$)",
    CHAIN: r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception)",
    ELASTIC: r"(?:Root Cause \(first observed failure\)|failed \(exitcode: -?[0-9]+\) local_rank: |The first process to do so was:|Container rank [0-9]+ status failed|RANK [0-9]+ PID [0-9]+ RUNNING AT )",
    NORMAL_END: r"(?:\[after training is done\]|train_runtime|max_epochs=[0-9]+` reached|max_steps=[0-9]+` reached"
    r"|[Tt]raining (?:has )?(?:completed|complete|finished|done|succeeded)|[Ff]inished training|[Dd]one training"
    r"|TRAINING COMPLETE|Training completed\. Do not forget to share your model|is now trained and ready"
    r"|[Ss]aved (?:the )?final (?:model|checkpoint)|epochs completed in|Reporting training SUCCESS|exited with code 0|exit code 0|done training in |Job completed successfully"
    r"|Loss for final step: |exiting program after [0-9]+ iterations|`Trainer\.fit` stopped: |Epoch [0-9]+: early stopping"
    r"|Trial [0-9]+ finished with value|(?:finished|completed|stopped) successfully|[Ss]uccessfully (?:finished|completed|stopped|trained))",
    RESUMED: r"(?:[Rr]esum(?:ing|ed) (?:training |run )?from |[Rr]estor(?:ing|ed) (?:from|(?:all )?states? from|parameters from) )",
    MEMBER: r"(?:pid=[0-9]+\) world_rank=[0-9]+|pid=[0-9]+(?:, ip=[^)]{1,60})?\) .{0,80}\[rank=[0-9]+, world_size=|\[xgboost\.dask-[0-9]+\]:\S+ got (?:new )?rank [0-9]+)",
    # how many ranks there are
    WORLD: r"(?:\b[Ww]orld[_ ]size[\"']?(?:=|: ?)[0-9]{1,6}\b|MEMBER: [0-9]+/[0-9]{1,6}\b)",
    # launchers that start all processes again: torch elastic, DeepSpeed, Horovod, Ray Train, Lightning
    RESTARTED: r"(?:will restart worker group|[Rr]estarting worker group|Restarting (?:the )?(?:workers|training|process group)|resetting (?:the )?workers|Attempting to restart)",
    # events of Kubernetes; the first container of a pod that had to wait for a node or for its image
    STARTED: r"(?:Started container|Container started)",
    CHECKPOINT: r"(?:[Ss]av(?:ed|ing)|SAVED|[Ww]r(?:ote|iting|itten)|[Ss]tored) .{0,60}(?:[Cc]heckpoint|ckpt|global_?step|model_states|snapshot|model to )"
    r"|(?:[Cc]heckpoint|[Ss]napshot)s? .{0,80}(?:saved|written|stored|complete)|successfully saved|saving model to ",
    PREPARING: r"(?:[Tt]okeniz(?:ing|e)|[Mm]ap(?:ping)?|[Ff]ilter(?:ing)?|[Pp]ack(?:ing|ed)?|[Gg]rouping texts|[Pp]re-?process(?:ing)?|[Pp]reparing|[Gg]enerating \w+ split"
    r"|[Ee]ncoding|[Cc]onverting format|[Ss]huffling|[Ii]ndexing|[Cc]aching|[Bb]uild(?:ing)?|[Ff]eaturiz(?:ing|e)|Running tokenizer on dataset|Drop .{1,40}|Saving the dataset)\b.{0,60}?: +[0-9]{1,3}%"
    r"|(?:[Tt]okenizing|[Pp]re-?processing|[Pp]reparing|[Bb]uilding|[Pp]acking|[Ii]ndexing) (?:the |train(?:ing)? |eval )?(?:data|dataset|samples|index|corpus|shuffle|documents?|examples)",
}
"""Name -> pattern."""
