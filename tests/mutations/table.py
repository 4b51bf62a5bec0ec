"""One row per deliberate break: which guarantee, what is broken, why that breaks it, who must notice.

Run by `python -m tests.mutations`. Where code that is named here changes, its row changes with it:
`test_table.py` fails until it does.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One change that breaks a guarantee."""

    guarantee: int
    """Its number in docs/guarantees.md."""
    why: str
    """What goes wrong then."""
    file: str
    """From the root of the project."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    test: str
    """The narrowest test that must fail, as pytest names it."""


CONTROL = "airflow_training/control"
LOCAL = "airflow_training/runtimes/local"
AGENT = "airflow_training/agent"
SUPERVISE = "airflow_training/supervise"
STATE = "airflow_training/state"
CHECKPOINTS = "airflow_training/checkpoints"

LIFECYCLE = "tests/control/test_lifecycle.py"
RESTARTS = "tests/control/test_restarts.py"
IN_PLACE = "tests/control/test_in_place.py"
STALE_WRITERS = "tests/checkpoints/test_stale_writers.py::test_in_no_order_of_operations_anything_stale_counts_or_anything_acknowledged_is_lost"
GANG = "tests/control/test_gang.py"
ELASTIC = "tests/control/test_elastic.py"
PROCESSES = "tests/runtimes/test_local_processes.py"
CONTRACT = "tests/runtimes/test_local_contract.py::TestLocal"
LOOP = "tests/supervise/test_loop.py"
KEEPER = "tests/supervise/test_lease_keeper.py"
ADMISSION = "tests/supervise/test_admission.py"
CODES = "tests/spec/test_codes.py"

MUTATIONS = (
    # 1. at most one live instance of (run, role, index) --------------------------------------------
    Mutation(
        guarantee=1,
        why="An attempt that is given up does not hold back its successor while its object lives.",
        file=f"{CONTROL}/turnover.py",
        old="        draft.doom(seen)\n        draft.occupy(seen)\n",
        new="        draft.doom(seen)\n",
        test=f"{RESTARTS}::test_an_unknown_instance_is_replaced_only_when_the_old_one_is_surely_gone",
    ),
    Mutation(
        guarantee=1,
        why="An attempt begins inside an instance whose own attempt has not ended yet.",
        file=f"{CONTROL}/turnover.py",
        old='    return old.state in ENDED and (stays or draft.spec.scheduling.gang == "kueue")\n',
        new='    return stays or (old.state in ENDED and draft.spec.scheduling.gang == "kueue")\n',
        test=f"{IN_PLACE}::test_nothing_begins_in_an_instance_whose_process_still_ends",
    ),
    Mutation(
        guarantee=1,
        why="An agent on a host that cannot be seen from here is taken for gone, and doubled.",
        file=f"{LOCAL}/launch.py",
        old="            if not standing.over:\n",
        new="            if not standing.over and standing.life is not Life.ELSEWHERE:\n",
        test=f"{PROCESSES}::test_what_a_record_from_elsewhere_means",
    ),
    Mutation(
        guarantee=1,
        why="A second agent of one instance starts, whatever its lock says.",
        file=f"{AGENT}/main.py",
        old="    if not _take(lock):\n",
        new="    if not _take(lock) and not folder.spec.exists():\n",
        test=f"{PROCESSES}::test_only_one_agent_can_live_per_instance",
    ),
    Mutation(
        guarantee=1,
        why="A process that got a dead agent's number is taken for the agent.",
        file=f"{LOCAL}/life.py",
        old='        alive = proc.start_time(agent["pid"]) == agent["start_time"]\n',
        new='        alive = proc.start_time(agent["pid"]) is not None\n',
        test=f"{PROCESSES}::test_a_number_that_was_given_away_again_is_no_agent",
    ),
    # 2. nothing is alive once the run is reported finished -------------------------------------------
    Mutation(
        guarantee=2,
        why="The job is over while its instances are still ending.",
        file=f"{CONTROL}/ending.py",
        old="    if not left and observations.reachable:\n",
        new="    if observations.reachable:\n",
        test=f"{LIFECYCLE}::test_stop_ends_everything_and_is_over_when_nothing_is_alive",
    ),
    Mutation(
        guarantee=2,
        why="A job is over while agents still wait for attempts that never come.",
        file=f"{CONTROL}/in_place.py",
        old="        waits = seen.in_place and seen.state in ENDED\n",
        new="        waits = False\n",
        test=f"{IN_PLACE}::test_nothing_waits_for_an_attempt_that_never_comes",
    ),
    Mutation(
        guarantee=2,
        why="What a command started in sessions of its own outlives it.",
        file=f"{AGENT}/instance.py",
        old="            tree.pop(besides or 0, None)\n            if not tree:\n                return\n",
        new="            return\n",
        test=f"{PROCESSES}::test_what_a_command_leaves_running_ends_with_it",
    ),
    Mutation(
        guarantee=2,
        why="Without a controller an instance runs for ever.",
        file=f"{AGENT}/instance.py",
        old='            self._in(float(deadline), "deadline", self._deadline)\n',
        new="            pass\n",
        test=f"{PROCESSES}::test_a_deadline_needs_no_controller",
    ),
    Mutation(
        guarantee=2,
        why="An agent that starts late, after its run was removed, stays.",
        file=f"{AGENT}/files.py",
        old='        if tombstone is not None and generation <= int(tombstone.get("generation", 0)):\n',
        new='        if tombstone is not None and generation < int(tombstone.get("generation", 0)) - 9:\n',
        test=f"{PROCESSES}::test_an_agent_that_starts_late_sees_that_it_must_not",
    ),
    Mutation(
        guarantee=2,
        why="Cleanup believes the ledger instead of looking.",
        file=f"{SUPERVISE}/cleanup.py",
        old="        await runtime.remove(run)\n",
        new="        pass\n",
        test="tests/supervise/test_cleanup.py::test_cleanup_ends_what_lives_although_the_run_is_over",
    ),
    Mutation(
        guarantee=2,
        why="The task `cleanup` believes that there is nothing to clean.",
        file="operators/ending.py",
        old='    if record is None:\n        log("nothing to clean',
        new='    if record is not None:\n        log("nothing to clean',
        test="tests/airflow/test_plan.py::test_cleanup_alone_ends_a_run_whose_rollup_never_came",
    ),
    # 3. intent is persisted before action -------------------------------------------------------------
    Mutation(
        guarantee=3,
        why="Instances are created and deleted before the store knows of it.",
        file=f"{SUPERVISE}/drive.py",
        old="        await self._commit(decision.new_ledger, decision.events)\n"
        "        if self._diagnoser is not None:\n"
        "            self._diagnoser.taken_in(diagnoses)\n"
        "        if self._committed is not None:\n"
        "            self._committed.taken_in(committed)\n"
        "        retry_seconds = await self._act(decision)\n",
        new="        retry_seconds = await self._act(decision)\n"
        "        await self._commit(decision.new_ledger, decision.events)\n",
        test=f"{LOOP}::test_the_store_knows_of_every_effect_before_it_happens",
    ),
    Mutation(
        guarantee=3,
        why="After a commit whose answer was lost, the next one writes the same change again.",
        file=f"{SUPERVISE}/drive.py",
        old="        self.ledger, job = await retrying(self._stored)\n",
        new="        _, job = await retrying(self._stored)\n",
        test=f"{LOOP}::test_a_store_that_fails_neither_ends_nor_doubles_anything",
    ),
    Mutation(
        guarantee=3,
        why="A holder that was replaced writes over the ledger of its successor.",
        file=f"{STATE}/leases.py",
        old='    .where(LeaseRow.run == bindparam("uid"), LeaseRow.generation == bindparam("mine"))\n',
        new='    .where(LeaseRow.run == bindparam("uid"), LeaseRow.generation >= bindparam("mine"))\n',
        test="tests/state/test_leases.py::test_a_former_holder_writes_nothing",
    ),
    Mutation(
        guarantee=3,
        why="Every pass, and every new holder, acts on the same request again.",
        file=f"{CONTROL}/requests.py",
        old="        draft.set_job(seen_request=request.id)\n",
        new="",
        test=f"{LIFECYCLE}::test_every_request_is_acted_on_once",
    ),
    Mutation(
        guarantee=3,
        why="A holder that has lost its lease still deletes what its successor drives.",
        file=f"{SUPERVISE}/effects.py",
        old="            for (grace_seconds, dump_stacks), refs in batches.items():\n"
        "                await self.keeper.confirm()\n",
        new="            for (grace_seconds, dump_stacks), refs in batches.items():\n",
        test=f"{KEEPER}::test_a_lost_lease_acts_on_nothing",
    ),
    # 4. a replica that has succeeded never runs again ---------------------------------------------------
    Mutation(
        guarantee=4,
        why="A restart of the whole job takes along what has finished.",
        file=f"{CONTROL}/outcomes.py",
        old='    return not (fresh and entry.state == "failed" and not over)\n',
        new="    return over\n",
        test=f"{RESTARTS}::test_what_succeeded_never_runs_again_even_if_its_object_is_deleted",
    ),
    Mutation(
        guarantee=4,
        why="A cleared run starts again from nothing.",
        file=f"{CONTROL}/requests.py",
        old='        if not entry.retired and not (entry.final and entry.state == "succeeded"):\n',
        new="        if not entry.retired:\n",
        test=f"{LIFECYCLE}::test_a_reopened_job_keeps_what_succeeded_and_tries_the_rest_again",
    ),
    Mutation(
        guarantee=4,
        why="An agent that is started twice runs an attempt again that has ended.",
        file=f"{AGENT}/main.py",
        old='    if (read_json(folder.exit) or {}).get("uid") == spec["uid"]:\n',
        new="    if False:\n",
        test=f"{PROCESSES}::test_an_attempt_that_has_ended_is_not_run_again",
    ),
    # 5. killing the processes of Airflow costs the training nothing -------------------------------------
    Mutation(
        guarantee=5,
        why="Agents stay in the process group of the triggerer and die with it.",
        file=f"{AGENT}/main.py",
        old="        if pid == 0:\n            os.setsid()\n",
        new="        if pid == 0:\n",
        test=f"{PROCESSES}::test_killing_the_creators_whole_process_group_costs_no_step",
    ),
    Mutation(
        guarantee=5,
        why="A loop that is cancelled, as a triggerer that shuts down does it, ends the training.",
        file=f"{SUPERVISE}/drive.py",
        old="        finally:\n            for task in background:\n                task.cancel()\n",
        new="        finally:\n            await self._runtime.remove(self._run)\n"
        "            for task in background:\n                task.cancel()\n",
        test=f"{LOOP}::test_a_cancelled_loop_leaves_the_training_alone_and_the_next_adopts_it",
    ),
    Mutation(
        guarantee=5,
        why="A trigger that is cancelled stops the job without asking Airflow whether its task is over.",
        file="airflow_training/triggers/reconcile.py",
        old="        if state is None:\n            self.log.info(",
        new='        if state == "never":\n            self.log.info(',
        test="tests/airflow/test_triggers.py::test_a_killed_reconcile_stops_the_job_only_when_the_task_is_over",
    ),
    Mutation(
        guarantee=5,
        why="The next holder deletes what the one before it made, instead of adopting it.",
        file=f"{CONTROL}/sightings.py",
        old="        elif entry is None or not _is_expected(entry, seen):\n",
        new="        elif entry is None or seen.generation != draft.generation:\n",
        test=f"{LIFECYCLE}::test_what_was_made_before_its_holder_died_is_adopted_by_the_next",
    ),
    # 6. every restart is counted once, in one class, and says why -----------------------------------------
    Mutation(
        guarantee=6,
        why="A failure of an attempt that is being replaced already is charged too.",
        file=f"{CONTROL}/outcomes.py",
        old="        if failure.role in replaced:\n",
        new="        if failure.role in ():\n",
        test=f"{RESTARTS}::test_a_failure_of_an_attempt_being_replaced_costs_nothing",
    ),
    Mutation(
        guarantee=6,
        why="A charge of now replaces those from before.",
        file=f"{CONTROL}/outcomes.py",
        old="    draft.set_job(restarts=(*draft.job.restarts, *(each.record for each in planned)))\n",
        new="    draft.set_job(restarts=tuple(each.record for each in planned))\n",
        test=f"{RESTARTS}::test_preemption_is_counted_and_never_limited",
    ),
    Mutation(
        guarantee=6,
        why="A preemption is charged to what its signal looks like.",
        file=f"{CONTROL}/failures.py",
        old="    if disrupted:\n",
        new="    if disrupted and signal is None and exit_code is None:\n",
        test=f"{RESTARTS}::test_every_restart_is_charged_to_one_class",
    ),
    Mutation(
        guarantee=6,
        why="The trail does not say which rule has fired.",
        file=f"{CONTROL}/outcomes.py",
        old="        of=entry,\n        rule=restart.rule,\n",
        new="        of=entry,\n",
        test=f"{RESTARTS}::test_a_rule_comes_before_the_restart_policy",
    ),
    Mutation(
        guarantee=6,
        why="What fails before it joins an elastic role restarts all others.",
        file=f"{CONTROL}/outcomes.py",
        old="        if _entry(draft, failure).joining:\n",
        new="        if _entry(draft, failure).final:\n",
        test=f"{ELASTIC}::test_what_fails_before_it_joins_is_tried_ever_more_rarely_and_costs_nothing",
    ),
    Mutation(
        guarantee=6,
        why="An elastic job restarts for what comes and goes, and never gets on.",
        file=f"{CONTROL}/elastic.py",
        old="    return draft.spec.checkpoint is not None and draft.job.recovery.progressed_at > fewer.since\n",
        new="    return True\n",
        test=f"{ELASTIC}::test_the_missing_one_is_tried_only_after_the_others_have_got_on",
    ),
    Mutation(
        guarantee=6,
        why="An elastic job goes on with fewer and fewer ranks that need too much memory.",
        file=f"{CONTROL}/elastic.py",
        old='        and failure.reason != "OOMKilled"\n',
        new="",
        test=f"{ELASTIC}::test_only_what_the_platform_did_costs_a_rank_instead_of_the_job",
    ),
    # 7. a gang and a start order that deadlock are refused --------------------------------------------------
    Mutation(
        guarantee=7,
        why="A role that waits for another is counted among the first to be created.",
        file=f"{CONTROL}/gang.py",
        old='        job.role(each.role).replicas == 0 and each.require == "All" for each in role.depends_on\n',
        new='        job.role(each.role).replicas == 0 or each.require == "Any" for each in role.depends_on\n',
        test=f"{GANG}::test_the_proof_agrees_with_a_simulated_gang_scheduler_on_thousands_of_jobs",
    ),
    Mutation(
        guarantee=7,
        why="Left to choose, it takes an order that never comes up.",
        file=f"{CONTROL}/gang.py",
        old='    if job.scheduling.gang == "none":\n        return _choice(',
        new="    if job.scheduling.gang:\n        return _choice(",
        test=f"{GANG}::test_what_is_chosen_always_comes_up",
    ),
    Mutation(
        guarantee=7,
        why="The proof is made, and nobody reads it.",
        file=f"{SUPERVISE}/layout.py",
        old="    problems = [problem] if problem else []\n",
        new="    problems = []\n",
        test=f"{ADMISSION}::test_each_code_that_needs_a_framework",
    ),
    # 8. what cannot work is refused before anything starts --------------------------------------------------
    Mutation(
        guarantee=8,
        why="A mistyped key is ignored.",
        file="airflow_training/spec/base.py",
        old='        extra="forbid",\n',
        new='        extra="ignore",\n',
        test=f"{CODES}::test_a_mistake_has_its_code_field_value_and_hint",
    ),
    Mutation(
        guarantee=8,
        why="A user's variable silently fights the framework's.",
        file="frameworks/pods.py",
        old="        if name in reserved or ours:\n",
        new="        if ours:\n",
        test="tests/frameworks/test_resolve.py::test_refused_before_anything_starts",
    ),
    Mutation(
        guarantee=8,
        why="A name is checked without its longest index, and the cluster refuses it later.",
        file="frameworks/naming.py",
        old="        longest = instance_name(job + _HASH, role, max(most - 1, 0))\n",
        new="        longest = instance_name(job + _HASH, role, 0)\n",
        test="tests/frameworks/test_resolve.py::test_refused_before_anything_starts",
    ),
    Mutation(
        guarantee=8,
        why="Roles that wait for each other in a circle are accepted.",
        file="airflow_training/spec/graph.py",
        old="                cycles.append([*path[path.index(following) :], following])\n",
        new="                continue\n",
        test=f"{CODES}::test_a_cycle_is_named_once_with_its_path",
    ),
    Mutation(
        guarantee=8,
        why="A role that does not exist is waited for.",
        file="airflow_training/spec/checks.py",
        old="        if name not in known:\n",
        new="        if not name:\n",
        test=f"{CODES}::test_a_mistake_has_its_code_field_value_and_hint",
    ),
    Mutation(
        guarantee=8,
        why="`validate` finds the mistake, and `run` starts all the same.",
        file=f"{SUPERVISE}/admission.py",
        old="    answer = _answer(document, problems, warnings)\n",
        new="    answer = _answer(document, [] if request.starts else problems, warnings)\n",
        test="tests/cli/test_commands.py::test_a_refused_job_leaves_no_trace",
    ),
    Mutation(
        guarantee=9,
        why="A save is acknowledged although a later start has not seen it.",
        file=f"{CHECKPOINTS}/group.py",
        old="            # only now: a later start that has not seen this manifest has claimed before it was there\n            self._refuse_if_stale()\n",
        new="",
        test=STALE_WRITERS,
    ),
    Mutation(
        guarantee=9,
        why="What a replaced process saved counts.",
        file=f"{CHECKPOINTS}/lineage.py",
        old="if m.step <= until",
        new="if m.step <= math.inf",
        test=STALE_WRITERS,
    ),
    Mutation(
        guarantee=9,
        why="Two processes that start at once have the same generation.",
        file=f"{CHECKPOINTS}/claiming.py",
        old="        if not rivals:\n",
        new="        if True:\n",
        test=STALE_WRITERS,
    ),
    Mutation(
        guarantee=9,
        why="Shards are taken as they are.",
        file=f"{CHECKPOINTS}/verifying.py",
        old="        if found != committed:\n",
        new="        if False:\n",
        test="tests/checkpoints/test_group.py::test_reading_compares_what_it_returns",
    ),
    Mutation(
        guarantee=9,
        why="The sweep takes the shards of a save in progress.",
        file=f"{CHECKPOINTS}/retention.py",
        old="        if (save.generation, save.step) <= (newest.generation, newest.step):\n",
        new="        if True:\n",
        test="tests/checkpoints/test_group.py::test_a_save_in_progress_loses_nothing_to_the_sweep",
    ),
    Mutation(
        guarantee=9,
        why="A command starts, and restores, where its devices are missing.",
        file=f"{AGENT}/instance.py",
        old="        if verdict.ready:\n",
        new="        if True:\n",
        test="tests/runtimes/test_local_readiness.py::test_a_place_that_never_gets_fit_fails_the_instance",
    ),
    Mutation(
        guarantee=9,
        why="Devices that were there before are not missed.",
        file=f"{AGENT}/readiness.py",
        old="    needed = len(names_before) if limit is None else limit\n",
        new="    needed = 0 if limit is None else limit\n",
        test="tests/agent/test_readiness.py::test_what_is_missing_is_told_with_its_figures",
    ),
    Mutation(
        guarantee=9,
        why="The next attempt goes to the node that was not fit for this one.",
        file=f"{CONTROL}/recovery_level.py",
        old='    reasons.ENVIRONMENT_NOT_READY: "node",\n',
        new="",
        test="tests/kubernetes/test_failures.py::test_a_node_that_is_not_fit_for_it_is_left",
    ),
    Mutation(
        guarantee=9,
        why="Ranks go on from what some of them hold although they do not hold the same.",
        file=f"{CHECKPOINTS}/peers.py",
        old="        if different := _differing(first.sections, everyone[rank].sections):\n",
        new="        if different := []:\n",
        test="tests/checkpoints/test_peers.py::test_where_a_group_goes_on_from",
    ),
    Mutation(
        guarantee=9,
        why="Half a step of the optimizer is taken for the state of the step before.",
        file=f"{CHECKPOINTS}/torch_boundary.py",
        old='        self._changed_by = "the optimizer was at work when the step failed"\n',
        new="        pass\n",
        test="tests/checkpoints/test_rejoining.py::test_without_a_whole_state_and_a_checkpoint_it_says_to_start_anew",
    ),
    Mutation(
        guarantee=9,
        why="What a failed save has left stays for good.",
        file=f"{CHECKPOINTS}/sweeping.py",
        old="        if known is not None and not self._begun and self._commits % _ALL_EVERY:\n",
        new="        if known is not None and self._commits % _ALL_EVERY:\n",
        test="tests/checkpoints/test_group.py::test_what_failed_saves_left_is_swept",
    ),
)
