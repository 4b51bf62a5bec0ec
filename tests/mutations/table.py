"""One row per deliberate break: which guarantee, what is broken, why that breaks it, who must notice.

Run by `python -m tests.mutations`. A row names a function and what changes in its syntax tree, so that the rest of the
file, comments and layout are no part of it; in a file that is no module it names the text itself. Where what it names changes, its row changes with it: `test_table.py` fails
until it does.
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
    definition: str
    """The function or class that is broken, by its qualified name; empty: the module itself."""
    old: str
    """An expression or statements of it, in exactly one place, as `change` takes them."""
    new: str
    """What stands there instead; empty: nothing."""
    test: str
    """The narrowest test that must fail, as pytest names it."""


CONTROL = "airflow_training/control"
LOCAL = "airflow_training/runtimes/local"
AGENT = "airflow_training/agent"
SUPERVISE = "airflow_training/supervise"
STATE = "airflow_training/state"
CHECKPOINTS = "airflow_training/checkpoints"
WEB = "airflow_training/web"

LIFECYCLE = "tests/control/test_lifecycle.py"
RESTARTS = "tests/control/test_restarts.py"
IN_PLACE = "tests/control/test_in_place.py"
STALE_WRITERS = "tests/checkpoints/test_stale_writers.py::test_in_no_order_of_operations_anything_stale_counts_or_anything_acknowledged_is_lost"
GANG = "tests/control/test_gang.py"
ELASTIC = "tests/control/test_elastic.py"
PROCESSES = "tests/runtimes/test_local_processes.py"
CONTRACT = "tests/runtimes/test_local_contract.py::TestLocal"
LOOP = "tests/supervise/test_loop.py"
FIRST_PASS = "tests/supervise/test_first_pass.py"
KEEPER = "tests/supervise/test_lease_keeper.py"
ADMISSION = "tests/supervise/test_admission.py"
CODES = "tests/documents/test_codes.py"

MUTATIONS = (
    # 1. at most one live instance of (run, role, index) --------------------------------------------
    Mutation(
        guarantee=1,
        why="An attempt that is given up does not hold back its successor while its object lives.",
        file="airflow_training/control/transitions.py",
        definition="next_attempt",
        old="draft.occupy(seen)",
        new="",
        test=f"{RESTARTS}::test_an_unknown_instance_is_replaced_only_when_the_old_one_is_surely_gone",
    ),
    Mutation(
        guarantee=1,
        why="An attempt begins inside an instance whose own attempt has not ended yet.",
        file="airflow_training/control/transitions.py",
        definition="is_vacant",
        old="old.state in ENDED and (stays or draft.spec.scheduling.keeps_size)",
        new="stays or (old.state in ENDED and draft.spec.scheduling.keeps_size)",
        test=f"{IN_PLACE}::test_nothing_begins_in_an_instance_whose_process_still_ends",
    ),
    Mutation(
        guarantee=1,
        why="An agent on a host that cannot be seen from here is taken for gone, and doubled.",
        file=f"{LOCAL}/launch.py",
        definition="Launcher._plan",
        old="not standing.over",
        new="not standing.over and standing.life is not AgentLiveness.ELSEWHERE",
        test="tests/runtimes/test_local_records.py::test_what_a_record_from_elsewhere_means",
    ),
    Mutation(
        guarantee=1,
        why="A second agent of one instance starts, whatever its lock says.",
        file=f"{AGENT}/main.py",
        definition="_live",
        old="not _take(lock)",
        new="not _take(lock) and (not folder.spec.exists())",
        test="tests/runtimes/test_local_agents.py::test_only_one_agent_can_live_per_instance",
    ),
    Mutation(
        guarantee=1,
        why="A process that got a dead agent's number is taken for the agent.",
        file="airflow_training/runtimes/local/liveness.py",
        definition="_liveness",
        old="proc.start_time(agent['pid']) == agent['start_time']",
        new="proc.start_time(agent['pid']) is not None",
        test="tests/runtimes/test_local_records.py::test_a_number_that_was_given_away_again_is_no_agent",
    ),
    Mutation(
        guarantee=1,
        why="An attempt starts beside one whose folder somebody deleted.",
        file=f"{LOCAL}/launch.py",
        definition="Launcher.create",
        old="end_strays(RunFolder(self.local_dir, uid))",
        new="[]",
        test="tests/runtimes/test_local_lost_folders.py::test_nothing_starts_beside_what_lost_its_folder",
    ),
    Mutation(
        guarantee=1,
        why="A run id that is used again takes up what an earlier run of that id has left.",
        file=f"{LOCAL}/runtime.py",
        definition="LocalRuntime._prepare",
        old="quarantine_previous(self._folder(run), run)",
        new="",
        test="tests/cli/test_run.py::test_a_run_id_runs_again_once_the_store_has_forgotten_it",
    ),
    Mutation(
        guarantee=1,
        why="A run begins beside one of the same id that the store has lost.",
        file="airflow_training/admission/launch.py",
        definition="check_runtime",
        old=("if problems:\n    raise InputError(problems=problems)"),
        new=(
            "if not problems:\n"
            "    return ()\n"
            "if problems[0].field != 'run_id':\n"
            "    raise InputError(problems=problems)"
        ),
        test="tests/cli/test_run.py::test_a_run_id_is_refused_while_a_run_that_the_store_has_lost_lives",
    ),
    Mutation(
        guarantee=1,
        why="`plan` starts instances on its own host that a triggerer elsewhere cannot see.",
        file="operators/first_pass.py",
        definition="_why_not",
        old="set(store.airflow.places(key.source)) != {place}",
        new="place not in store.airflow.places(key.source)",
        test="tests/airflow/test_first_pass.py::test_what_a_triggerer_might_not_see_is_left_to_it",
    ),
    # 2. nothing is alive once the run is reported finished -------------------------------------------
    Mutation(
        guarantee=2,
        why="An instance is gone as soon as its folder is, whatever still runs.",
        file=f"{LOCAL}/scan.py",
        definition="Scanner._observe",
        old="old.state not in ENDED and end_strays(self._run)",
        new="False",
        test="tests/runtimes/test_local_lost_folders.py::test_an_instance_is_gone_when_its_processes_are_not_when_its_folder_is",
    ),
    Mutation(
        guarantee=2,
        why="A run is removed although what lost its folder lives.",
        file=f"{LOCAL}/runtime.py",
        definition="LocalRuntime._remove",
        old="end_strays(folder)",
        new="[]",
        test="tests/runtimes/test_local_lost_folders.py::test_a_run_without_its_folder_is_removed_with_all_that_lives",
    ),
    Mutation(
        guarantee=2,
        why="An agent whose archive was deleted cannot load what it needs to end its tree.",
        file=f"{AGENT}/main.py",
        definition="_start",
        old="_import_what_may_be_needed()",
        new="",
        test="tests/runtimes/test_local_agents.py::test_an_agent_needs_its_archive_no_more_once_it_runs",
    ),
    Mutation(
        guarantee=2,
        why="The job is over while its instances are still ending.",
        file=f"{CONTROL}/ending.py",
        definition="drain",
        old="not left and observations.reachable",
        new="observations.reachable",
        test="tests/control/test_stopping.py::test_stop_ends_everything_and_is_over_when_nothing_is_alive",
    ),
    Mutation(
        guarantee=2,
        why="A job is over while agents still wait for attempts that never come.",
        file=f"{CONTROL}/in_place.py",
        definition="release_waiting",
        old="seen.waits",
        new="False",
        test=f"{IN_PLACE}::test_nothing_waits_for_an_attempt_that_never_comes",
    ),
    Mutation(
        guarantee=2,
        why="What a command started in sessions of its own outlives it.",
        file=f"{AGENT}/process_tree.py",
        definition="ProcessTree._kill",
        old="self.processes()",
        new="{}",
        test=f"{PROCESSES}::test_what_a_command_leaves_running_ends_with_it",
    ),
    Mutation(
        guarantee=2,
        why="Without a controller an instance runs for ever.",
        file=f"{AGENT}/attempt.py",
        definition="Attempt._watch_deadline",
        old="self._loop.after(float(self._order.deadline_seconds), 'deadline', self._deadline)",
        new="pass",
        test="tests/runtimes/test_local_creators.py::test_a_deadline_needs_no_controller",
    ),
    Mutation(
        guarantee=2,
        why="An agent that starts late, after its run was removed, stays.",
        file=f"{AGENT}/files.py",
        definition="AttemptFolder.refusal",
        old="generation <= int(tombstone.get('generation', 0))",
        new="generation < int(tombstone.get('generation', 0)) - 9",
        test="tests/runtimes/test_local_agents.py::test_an_agent_that_starts_late_sees_that_it_must_not",
    ),
    Mutation(
        guarantee=2,
        why="Cleanup believes the ledger instead of looking.",
        file=f"{SUPERVISE}/cleanup.py",
        definition="clean_up",
        old="await runtime.remove(run)",
        new="pass",
        test="tests/supervise/test_cleanup.py::test_cleanup_ends_what_lives_although_the_run_is_over",
    ),
    Mutation(
        guarantee=2,
        why="The task `cleanup` believes that there is nothing to clean.",
        file="operators/ending.py",
        definition="clean",
        old="record is None",
        new="record is not None",
        test="tests/airflow/test_rollup.py::test_cleanup_alone_ends_a_run_whose_rollup_never_came",
    ),
    Mutation(
        guarantee=2,
        why="A clock that is set back holds every wait and deadline for as long.",
        file="airflow_training/runtimes/clock.py",
        definition="WallClock.now",
        old="self._offset + steady_now()",
        new="max(time.time(), self._offset)",
        test="tests/supervise/test_run_clock.py::test_time_goes_on_as_if_nobody_had_set_the_clock",
    ),
    # 3. intent is persisted before action -------------------------------------------------------------
    Mutation(
        guarantee=3,
        why="Instances are created and deleted before the store knows of it.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive._pass",
        old=(
            "await self._commit(decision.new_ledger, decision.events)\n"
            "for follower in self._followers:\n"
            "    follower.on_persisted(known)\n"
            "retry_seconds = await self._runner.act(decision)"
        ),
        new=(
            "retry_seconds = await self._runner.act(decision)\n"
            "await self._commit(decision.new_ledger, decision.events)"
        ),
        test=f"{LOOP}::test_the_store_knows_of_every_effect_before_it_happens",
    ),
    Mutation(
        guarantee=3,
        why="After a commit whose answer was lost, the next one writes the same change again.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive._after_failure",
        old="self.ledger, job = await retrying(self._store, self._stored)",
        new="_, job = await retrying(self._store, self._stored)",
        test=f"{LOOP}::test_a_store_that_fails_neither_ends_nor_doubles_anything",
    ),
    Mutation(
        guarantee=2,
        why="A stop waits until the store takes it.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive._stop_without_store",
        old="await self._end_unrecorded()",
        new="continue",
        test=f"{LOOP}::test_a_stop_does_not_wait_for_the_store",
    ),
    Mutation(
        guarantee=2,
        why="What was ordered before a stop begins after it.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive.__init__",
        old="self._own_stop is not None",
        new="False",
        test=f"{LOOP}::test_what_was_ordered_before_a_stop_does_not_begin_after_it",
    ),
    Mutation(
        guarantee=3,
        why="A stop is carried out although the store could still be told of it first.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive._stop_without_store",
        old=("await asyncio.sleep(_RECORD_SECONDS)\nif self._end_recorded:\n    continue"),
        new="",
        test=f"{LOOP}::test_a_stop_that_the_store_takes_is_recorded_before_it_is_acted_on",
    ),
    Mutation(
        guarantee=3,
        why="A holder that was replaced writes over the ledger of its successor.",
        file=f"{STATE}/leases.py",
        definition="",
        old="LeaseRow.generation == bindparam('mine')",
        new="LeaseRow.generation >= bindparam('mine')",
        test="tests/state/test_leases.py::test_a_former_holder_writes_nothing",
    ),
    Mutation(
        guarantee=3,
        why="Every pass, and every new holder, acts on the same request again.",
        file=f"{CONTROL}/requests.py",
        definition="apply_requests",
        old="draft.job = replace(draft.job, seen_request=request.id or seen)",
        new="",
        test=f"{LIFECYCLE}::test_every_request_is_acted_on_once",
    ),
    Mutation(
        guarantee=3,
        why="A holder that has lost its lease still deletes what its successor drives.",
        file=f"{SUPERVISE}/effects.py",
        definition="Effects.perform",
        old=(
            "for (grace_seconds, dump_stacks), refs in batches.items():\n"
            "    await self.keeper.confirm()\n"
            "    await end(refs, grace_seconds=grace_seconds, dump_stacks=dump_stacks)"
        ),
        new=(
            "for (grace_seconds, dump_stacks), refs in batches.items():\n"
            "    await end(refs, grace_seconds=grace_seconds, dump_stacks=dump_stacks)"
        ),
        test=f"{KEEPER}::test_a_lost_lease_acts_on_nothing",
    ),
    Mutation(
        guarantee=3,
        why="`plan` makes the first pass of a run whose turn has not come.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive.first_pass",
        old="self._queued and (not await take_turn(self._queue_turn()))",
        new="self._queued and (not await take_turn(self._queue_turn())) and (not self._run)",
        test=f"{FIRST_PASS}::test_a_run_whose_turn_has_not_come_is_left_in_the_queue",
    ),
    Mutation(
        guarantee=3,
        why="The first pass creates instances before the store knows of them: a kill in between forgets them.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive._pass",
        old="await self._commit(decision.new_ledger, decision.events)",
        new="",
        test=f"{FIRST_PASS}::test_it_starts_what_may_start_and_gives_the_lease_up",
    ),
    # 4. a replica that has succeeded never runs again ---------------------------------------------------
    Mutation(
        guarantee=4,
        why="A restart of the whole job takes along what has finished.",
        file=f"{CONTROL}/attempt_replacement.py",
        definition="_is_left_alone",
        old="not (fresh and entry.state == 'failed' and (not over))",
        new="over",
        test=f"{RESTARTS}::test_what_succeeded_never_runs_again_even_if_its_object_is_deleted",
    ),
    Mutation(
        guarantee=4,
        why="A cleared run starts again from nothing.",
        file=f"{CONTROL}/requests.py",
        definition="_reopen",
        old="not entry.retired and (not (entry.final and entry.state == 'succeeded'))",
        new="not entry.retired",
        test="tests/control/test_reopening.py::test_a_reopened_job_keeps_what_succeeded_and_tries_the_rest_again",
    ),
    Mutation(
        guarantee=4,
        why="An agent that is started twice runs an attempt again that has ended.",
        file=f"{AGENT}/main.py",
        definition="_live",
        old="(read_json(folder.exit) or {}).get('uid') == order.uid",
        new="False",
        test="tests/runtimes/test_local_agents.py::test_an_attempt_that_has_ended_is_not_run_again",
    ),
    # 5. killing the processes of Airflow costs the training nothing -------------------------------------
    Mutation(
        guarantee=5,
        why="Agents stay in the process group of the triggerer and die with it.",
        file=f"{AGENT}/main.py",
        definition="_start",
        old="os.setsid()",
        new="",
        test="tests/runtimes/test_local_creators.py::test_killing_the_creators_whole_process_group_costs_no_step",
    ),
    Mutation(
        guarantee=5,
        why="What was ordered before a take-over and begins after it is refused, and charged as a failure.",
        file="airflow_training/runtimes/folders/paths.py",
        definition="RunFolder.refuse_or_own",
        old="list(self._orders_to_begin())",
        new="[]",
        test="tests/agent/test_agent_parts.py::test_who_takes_a_run_over_takes_over_what_was_ordered_and_has_not_begun",
    ),
    Mutation(
        guarantee=5,
        why="A loop that is cancelled, as a triggerer that shuts down does it, ends the training.",
        file=f"{SUPERVISE}/drive.py",
        definition="Drive._background",
        old=("for task in background:\n    task.cancel()"),
        new=("await self._runtime.remove(self._run)\nfor task in background:\n    task.cancel()"),
        test=f"{LOOP}::test_a_cancelled_loop_leaves_the_training_alone_and_the_next_adopts_it",
    ),
    Mutation(
        guarantee=5,
        why="A trigger that is cancelled stops the job without asking Airflow whether its task is over.",
        file="airflow_training/triggers/reconcile.py",
        definition="ReconcileTrigger.on_kill",
        old="state is None",
        new="state == 'never'",
        test="tests/airflow/triggers/test_reconcile.py::test_a_killed_reconcile_stops_the_job_only_when_the_task_is_over",
    ),
    Mutation(
        guarantee=5,
        why="The next holder deletes what the one before it made, instead of adopting it.",
        file=f"{CONTROL}/observing.py",
        definition="_sort_out_unknown",
        old="not _is_expected(entry, seen)",
        new="seen.generation != draft.generation",
        test="tests/control/test_takeover.py::test_what_was_made_before_its_holder_died_is_adopted_by_the_next",
    ),
    # 6. every restart is counted once, in one class, and says why -----------------------------------------
    Mutation(
        guarantee=6,
        why="A failure of an attempt that is being replaced already is charged too.",
        file=f"{CONTROL}/outcomes.py",
        definition="_judge_all",
        old="failure.role in replaced",
        new="failure.role in ()",
        test=f"{RESTARTS}::test_a_failure_of_an_attempt_being_replaced_costs_nothing",
    ),
    Mutation(
        guarantee=6,
        why="What the loss of one instance does to its peers is charged to them.",
        file=f"{CONTROL}/restarts.py",
        definition="_within_limits",
        old="origin is not None",
        new="origin is None and budget.records is None",
        test="tests/control/test_diagnosed.py"
        "::test_what_the_loss_of_one_does_to_its_peers_costs_nothing",
    ),
    Mutation(
        guarantee=6,
        why="What the preemption of an instance does to its peers is charged to them.",
        file=f"{CONTROL}/diagnosed.py",
        definition="origin_of",
        old="record.counted or record.failure_class == 'preemption' or record.rule == MOVED",
        new="record.counted or record.rule == MOVED",
        test="tests/control/test_diagnosed.py::test_what_a_preemption_does_to_its_peers_costs_nothing_either",
    ),
    Mutation(
        guarantee=6,
        why="Who only lost others stays charged when it is known who failed first.",
        file=f"{CONTROL}/diagnosed.py",
        definition="excuse_peers",
        old="not excused",
        new="excused is not None",
        test="tests/control/test_failure_order.py"
        "::test_who_lost_the_first_to_fail_gets_its_charge_back_though_it_ended_before",
    ),
    Mutation(
        guarantee=6,
        why="A node that is lost is charged once for each instance that ran there.",
        file=f"{CONTROL}/lost_nodes.py",
        definition="outage_of",
        old="record.lost_node == node",
        new="record.lost_node == ''",
        test="tests/control/test_lost_nodes.py::test_a_silent_node_is_charged_once_whatever_ran_there",
    ),
    Mutation(
        guarantee=6,
        why="What was unknown before an outage is given up in it, by what was said before.",
        file=f"{CONTROL}/observing.py",
        definition="_unknown",
        old="not reachable",
        new="False",
        test="tests/control/test_clocks.py"
        "::test_what_is_unknown_is_given_up_only_where_that_is_still_said_once_somebody_can_ask",
    ),
    Mutation(
        guarantee=6,
        why="Who waits for an instance without a place is charged for its silence.",
        file=f"{CONTROL}/outcomes.py",
        definition="_with_whom_it_waited_for",
        old="missing_peer(draft, _entry(draft, failure))",
        new="''",
        test="tests/control/test_peers.py"
        "::test_where_nobody_can_be_told_a_hang_over_a_missing_peer_is_free",
    ),
    Mutation(
        guarantee=6,
        why="A charge of now replaces those from before.",
        file=f"{CONTROL}/attempt_replacement.py",
        definition="replace_attempts",
        old="draft.job.restarts + charged",
        new="charged",
        test=f"{RESTARTS}::test_preemption_is_counted_and_never_limited",
    ),
    Mutation(
        guarantee=6,
        why="A preemption is charged to what its signal looks like.",
        file=f"{CONTROL}/failures.py",
        definition="classify",
        old="disrupted and (known is None or known.failure_class != 'resource')",
        new="disrupted and signal is None and (exit_code is None)",
        test=f"{RESTARTS}::test_every_restart_is_charged_to_one_class",
    ),
    Mutation(
        guarantee=6,
        why="The trail does not say which rule has fired.",
        file=f"{CONTROL}/attempt_replacement.py",
        definition="_record_restart",
        old="restart.rule",
        new="''",
        test=f"{RESTARTS}::test_a_rule_comes_before_the_restart_policy",
    ),
    Mutation(
        guarantee=6,
        why="What fails before it joins an elastic role restarts all others.",
        file=f"{CONTROL}/outcomes.py",
        definition="_that_count",
        old="_entry(draft, failure).joining",
        new="_entry(draft, failure).final",
        test=f"{ELASTIC}::test_what_fails_before_it_joins_is_tried_ever_more_rarely_and_costs_nothing",
    ),
    Mutation(
        guarantee=6,
        why="An elastic job restarts for what comes and goes, and never gets on.",
        file=f"{CONTROL}/elastic.py",
        definition="may_create",
        old="draft.spec.checkpoint is not None and draft.job.recovery.progressed_at > reduced.since",
        new="True",
        test=f"{ELASTIC}::test_the_missing_one_is_tried_only_after_the_others_have_got_on",
    ),
    Mutation(
        guarantee=6,
        why="An elastic job goes on with fewer and fewer ranks that need too much memory.",
        file=f"{CONTROL}/elastic.py",
        definition="can_shrink",
        old="failure.failure_class == 'resource' and failure.known is not None and (failure.known.level != 'container')",
        new="failure.failure_class == 'resource' and failure.known is not None",
        test=f"{ELASTIC}::test_only_what_the_platform_did_costs_a_rank_instead_of_the_job",
    ),
    Mutation(
        guarantee=6,
        why="An attempt that ended while nobody watched is charged until somebody looks.",
        file="airflow_training/supervise/unseen_attempts.py",
        definition="with_unseen_attempts",
        old="entry.finished_at",
        new="entry.started_at",
        test="tests/supervise/test_unseen_attempts.py::test_an_attempt_that_ended_while_nobody_watched_is_charged_until_then",
    ),
    Mutation(
        guarantee=6,
        why="A restart counts twice against the limit of its instance.",
        file=f"{CONTROL}/attempt_replacement.py",
        definition="replace_attempts",
        old="entry.restarts + counted",
        new="entry.restarts + 2 * counted",
        test=f"{RESTARTS}::test_every_restart_is_charged_to_one_class",
    ),
    Mutation(
        guarantee=6,
        why="Of failures that are seen at once, each uses up two restarts of the job.",
        file=f"{CONTROL}/outcomes.py",
        definition="_judge_all",
        old="budget.charge(record)",
        new="budget.charge(record)\nbudget.charge(record)",
        test=f"{RESTARTS}::test_failures_of_one_snapshot_use_up_one_restart_each",
    ),
    # 7. a gang and a start order that deadlock are refused --------------------------------------------------
    Mutation(
        guarantee=7,
        why="A role that waits for another is counted among the first to be created.",
        file=f"{CONTROL}/gang.py",
        definition="_starts_at_once",
        old="job.role(each.role).replicas == 0 and each.require == 'All'",
        new="job.role(each.role).replicas == 0 or each.require == 'Any'",
        test=f"{GANG}::test_the_proof_agrees_with_a_simulated_gang_scheduler_on_thousands_of_jobs",
    ),
    Mutation(
        guarantee=7,
        why="Left to choose, it takes an order that never comes up.",
        file=f"{CONTROL}/gang.py",
        definition="choose_startup",
        old="job.scheduling.gang == 'none'",
        new="job.scheduling.gang",
        test=f"{GANG}::test_what_is_chosen_always_comes_up",
    ),
    Mutation(
        guarantee=7,
        why="The proof is made, and nobody reads it.",
        file="airflow_training/admission/layout.py",
        definition="_prove",
        old="[problem] if problem else []",
        new="[]",
        test=f"{ADMISSION}::test_each_code_that_needs_a_framework",
    ),
    # 8. what cannot work is refused before anything starts --------------------------------------------------
    Mutation(
        guarantee=8,
        why="A mistyped key is ignored.",
        file="airflow_training/documents/base.py",
        definition="Model",
        old="'forbid'",
        new="'ignore'",
        test=f"{CODES}::test_a_mistake_has_its_code_field_value_and_hint",
    ),
    Mutation(
        guarantee=8,
        why="A user's variable silently fights the framework's.",
        file="frameworks/pods.py",
        definition="environment_problems",
        old="name in reserved or ours",
        new="ours",
        test="tests/frameworks/test_resolve.py::test_refused_before_anything_starts",
    ),
    Mutation(
        guarantee=8,
        why="A name is checked without its longest index, and the cluster refuses it later.",
        file="frameworks/naming.py",
        definition="check_names",
        old="max(most - 1, 0)",
        new="0",
        test="tests/frameworks/test_resolve.py::test_refused_before_anything_starts",
    ),
    Mutation(
        guarantee=8,
        why="Roles that wait for each other in a circle are accepted.",
        file="airflow_training/documents/graph.py",
        definition="find_cycles",
        old="cycles.append([*path[path.index(following):], following])",
        new="continue",
        test=f"{CODES}::test_a_cycle_is_named_once_with_its_path",
    ),
    Mutation(
        guarantee=8,
        why="A role that does not exist is waited for.",
        file="airflow_training/documents/checks.py",
        definition="_unknown_roles",
        old="name not in known",
        new="not name",
        test=f"{CODES}::test_a_mistake_has_its_code_field_value_and_hint",
    ),
    Mutation(
        guarantee=8,
        why="`validate` finds the mistake, and `run` starts all the same.",
        file="airflow_training/admission/check.py",
        definition="_check",
        old="answer = _answer(document, problems, warnings)",
        new="answer = _answer(document, [] if request.starts else problems, warnings)",
        test="tests/cli/test_commands.py::test_a_refused_job_leaves_no_trace",
    ),
    Mutation(
        guarantee=9,
        why="A save is acknowledged although a later start has not seen it.",
        file=f"{CHECKPOINTS}/group.py",
        definition="Group.commit",
        old="self._refuse_if_stale()",
        new="",
        test=STALE_WRITERS,
    ),
    Mutation(
        guarantee=9,
        why="What a replaced process saved counts.",
        file=f"{CHECKPOINTS}/lineage.py",
        definition="trace",
        old="until",
        new="math.inf",
        test=STALE_WRITERS,
    ),
    Mutation(
        guarantee=9,
        why="Two processes that start at once have the same generation.",
        file=f"{CHECKPOINTS}/claiming.py",
        definition="claim",
        old="not rivals",
        new="True",
        test=STALE_WRITERS,
    ),
    Mutation(
        guarantee=9,
        why="Shards are taken as they are.",
        file=f"{CHECKPOINTS}/verifying.py",
        definition="_verified_content",
        old="found != committed",
        new="False",
        test="tests/checkpoints/test_group_starts.py::test_reading_compares_what_it_returns",
    ),
    Mutation(
        guarantee=9,
        why="The sweep takes the shards of a save in progress.",
        file=f"{CHECKPOINTS}/retention.py",
        definition="unreferenced_keys",
        old="(save.generation, save.step) <= (newest.generation, newest.step)",
        new="True",
        test="tests/checkpoints/test_group_retention.py::test_a_save_in_progress_loses_nothing_to_the_sweep",
    ),
    Mutation(
        guarantee=9,
        why="A command starts, and restores, where its devices are missing.",
        file=f"{AGENT}/preparing.py",
        definition="Preparation._check",
        old="verdict.ready",
        new="True",
        test="tests/runtimes/test_local_readiness.py::test_a_place_that_never_gets_fit_fails_the_instance",
    ),
    Mutation(
        guarantee=9,
        why="Devices that were there before are not missed.",
        file=f"{AGENT}/readiness.py",
        definition="_devices",
        old="len(names_before) if limit is None else limit",
        new="0 if limit is None else limit",
        test="tests/agent/test_readiness.py::test_what_is_missing_is_told_with_its_figures",
    ),
    Mutation(
        guarantee=9,
        why="The next attempt goes to the node that was not fit for this one.",
        file=f"{CONTROL}/reason_facts.py",
        definition="",
        old="reasons.ENVIRONMENT_NOT_READY",
        new="'NoSuchReason'",
        test="tests/kubernetes/test_failures.py::test_a_node_that_is_not_fit_for_it_is_left",
    ),
    Mutation(
        guarantee=9,
        why="Ranks go on from what some of them hold although they do not hold the same.",
        file="airflow_training/checkpoints/rejoin_decision.py",
        definition="choose",
        old="_differing(first.sections, everyone[rank].sections)",
        new="[]",
        test="tests/checkpoints/test_rejoin_decision.py::test_where_a_group_goes_on_from",
    ),
    Mutation(
        guarantee=9,
        why="Half a step of the optimizer is taken for the state of the step before.",
        file=f"{CHECKPOINTS}/torch_boundary.py",
        definition="Boundary._on_optimizer_step",
        old="self._changed_by = 'the optimizer was at work when the step failed'",
        new="pass",
        test="tests/checkpoints/test_rejoining.py::test_without_a_whole_state_and_a_checkpoint_it_says_to_start_anew",
    ),
    Mutation(
        guarantee=9,
        why="What a failed save has left stays for good.",
        file=f"{CHECKPOINTS}/sweeping.py",
        definition="Sweeper.committed",
        old="known is not None and (not self._begun) and self._commits % _ALL_EVERY",
        new="known is not None and self._commits % _ALL_EVERY",
        test="tests/checkpoints/test_group_retention.py::test_what_failed_saves_left_is_swept",
    ),
    Mutation(
        guarantee=9,
        why="A shard is compared chunk by chunk only: what no chunk is named for is taken as it is.",
        file=f"{CHECKPOINTS}/verifying.py",
        definition="_verified_content",
        old="digest_of(chunks, size=len(content), name=name) != shard.digest",
        new="False",
        test="tests/checkpoints/test_group_starts.py::test_reading_compares_all_that_it_returns_whatever_chunks_are_named",
    ),
    Mutation(
        guarantee=9,
        why="A start that reads no shard takes one that was cut off.",
        file=f"{CHECKPOINTS}/verifying.py",
        definition="_verify_size",
        old="size != shard.size",
        new="False",
        test="tests/checkpoints/test_group_starts.py::test_a_start_that_reads_nothing_compares_sizes",
    ),
    Mutation(
        guarantee=9,
        why="A manifest or a marker is taken as it is.",
        file=f"{CHECKPOINTS}/documents.py",
        definition="unseal",
        old="sha256_of(canonical(body)) != closing",
        new="False",
        test="tests/checkpoints/test_documents.py::test_every_changed_bit_is_found",
    ),
    # 10. what a page asks happens once, and only for who may ask it -------------------------------
    Mutation(
        guarantee=10,
        why="A retry of a request whose answer was lost is done again.",
        file=f"{STATE}/history.py",
        definition="add_request",
        old="known is not None",
        new="False",
        test="tests/state/test_history.py::test_the_same_key_again_adds_nothing",
    ),
    Mutation(
        guarantee=10,
        why="The second of two users changes what they have not seen.",
        file=f"{STATE}/history.py",
        definition="add_request",
        old="mark(connection, uid) not in (seen, None)",
        new="False",
        test="tests/state/test_history.py::test_of_many_who_ask_at_once_one_is_heard",
    ),
    Mutation(
        guarantee=10,
        why="Somebody acts on a run of which they have seen an earlier epoch.",
        file=f"{STATE}/history.py",
        definition="mark",
        old="from_json(JobEntry, row[0]).epoch",
        new="0",
        test="tests/state/test_history.py::test_a_request_about_an_earlier_epoch_is_refused",
    ),
    Mutation(
        guarantee=10,
        why="A right on one DAG reaches the runs of all.",
        file=f"{WEB}/rights.py",
        definition="run_of",
        old="dag_of(record) != dag",
        new="False",
        test="tests/airflow/test_rights.py::test_no_other_name_of_a_dag_leads_to_its_runs",
    ),
    Mutation(
        guarantee=10,
        why="A right on a DAG reaches the runs of another deployment's DAG of that name.",
        file=f"{WEB}/rights.py",
        definition="run_of",
        old="record.key.source not in sources",
        new="False",
        test="tests/web/test_runs_api.py::test_runs_of_another_deployment_are_not_there",
    ),
    Mutation(
        guarantee=10,
        why="Whoever is known may do anything.",
        file=f"{WEB}/rights.py",
        definition="Permit.__call__",
        old="rights_of(request).may(user, self.verb, dag_id)",
        new="True",
        test="tests/airflow/test_rights.py::test_a_route_answers_who_may_ask",
    ),
    Mutation(
        guarantee=10,
        why="Anybody on the machine reaches the pages of `airflow-training ui`.",
        file=f"{WEB}/standalone.py",
        definition="TokenRights.knows",
        old="hmac.compare_digest(token.encode(), self._token.encode())",
        new="True",
        test="tests/web/test_standalone.py::test_nothing_is_reached_without_the_token",
    ),
    Mutation(
        guarantee=10,
        why="A page of another site presses buttons with the user's cookie.",
        file=f"{WEB}/rights.py",
        definition="from_own_page",
        old="sec_fetch_site not in ('same-origin', 'none')",
        new="False",
        test="tests/web/test_actions_api.py::test_only_our_own_pages_press_buttons",
    ),
    # 11. what begins is decided and told to its end, from what a reader copies on ----------------
    Mutation(
        guarantee=11,
        why="No decision is made at all.",
        file=f"{CONTROL}/decide.py",
        definition="decide",
        old="record_checkpoints(draft, committed)",
        new="raise RuntimeError('broken')",
        test=f"{LIFECYCLE}::test_an_undisturbed_job_goes_through_its_states",
    ),
    Mutation(
        guarantee=11,
        why="The task of a role goes on for ever although its run has ended.",
        file="airflow_training/triggers/role.py",
        definition="verdict",
        old="not job.is_over",
        new="True",
        test="tests/airflow/triggers/test_roles.py::test_a_role_task_fails_only_with_its_role_and_the_job",
    ),
    Mutation(
        guarantee=11,
        why="The trigger of a role task knows the end and does not tell it.",
        file="airflow_training/triggers/role.py",
        definition="RoleTrigger.run",
        old="end is not None",
        new="False",
        test="tests/airflow/triggers/test_roles.py::test_a_failed_role_shows_the_last_lines_of_its_instance",
    ),
    Mutation(
        guarantee=11,
        why="The job of an example has a field that does not exist.",
        file="dags/examples/digits/planned.yaml",
        definition="",
        old="framework:",
        new="framwork:",
        test="tests/docs/test_docs.py::test_an_example_job_can_be_started",
    ),
    Mutation(
        guarantee=11,
        why="The DAG of an example names a file that is not there.",
        file="dags/examples/from_yaml.py",
        definition="",
        old="'digits.yaml'",
        new="'digit.yaml'",
        test="tests/airflow/test_package.py::test_an_example_is_a_dag_that_a_person_reads_in_a_minute",
    ),
    Mutation(
        guarantee=11,
        why="A command of the README has an option that does not exist.",
        file="README.md",
        definition="",
        old="--plot loss.png",
        new="--plott loss.png",
        test="tests/docs/test_docs.py::test_a_command_of_an_example_exists_with_its_options",
    ),
    Mutation(
        guarantee=11,
        why="A column of the models is made by no migration.",
        file=f"{STATE}/models.py",
        definition="RunRow",
        old="runtime: Mapped[Word]",
        new="runtime: Mapped[Word]\nunmade: Mapped[Word]",
        test="tests/state/test_upgrade.py::test_migrations_make_exactly_the_tables_of_the_models",
    ),
    Mutation(
        guarantee=11,
        why="A migration leaves out the column that it is for.",
        file="airflow_training/state/migrations/versions/0006_who_submitted.py",
        definition="upgrade",
        old="with op.batch_alter_table('training_runs') as table:\n    table.add_column(name)",
        new="",
        test="tests/state/test_upgrade.py::test_migrations_make_exactly_the_tables_of_the_models",
    ),
)
