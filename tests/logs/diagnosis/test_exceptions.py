"""Exceptions and their tracebacks as the explanation of an end: chained, cut off, in one line."""

from __future__ import annotations

import pytest

from airflow_training.logs.diagnosis.catalogue import Catalogue, load
from tests.logs.diagnosis.small_catalogue import OOM, TRACEBACK, ask, asked_of, cause, log, root


def test_an_exception_that_nobody_knows_is_the_cause_of_last_resort():
    found = ask(log(f"start\n{TRACEBACK}ValueError: bad config of mine\n"))
    assert root(found) == ("python-exception", 5)
    assert found.causes[0].evidence == "ValueError: bad config of mine"


def test_a_known_exception_goes_before_an_unknown_one():
    assert root(ask(log(f"{OOM}{TRACEBACK}ValueError: other\n"))) == ("cuda-out-of-memory", 4)


def test_a_child_that_says_first_that_its_parent_has_gone_only_followed():
    text = """\
spawning 4 loader processes
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 132, in _main
    self = reduction.pickle.load(from_parent)
_pickle.UnpicklingError: pickle data was truncated
Traceback (most recent call last):
  File "/app/train.py", line 16, in <module>
    build("cutmixx")
  File "/app/augment.py", line 4, in build
    raise ValueError(f"unknown augmentation {name!r}")
ValueError: unknown augmentation 'cutmixx'
"""
    assert root(asked_of(load(), text)) == ("python-exception", 12)


def test_a_line_of_source_code_proves_nothing():
    text = TRACEBACK.replace("step()", 'raise E("CUDA out of memory")') + "E2Error: x\n"
    assert ask(log(text)).causes[0].id == "python-exception"


HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"

DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        pytest.param(
            f"{TRACEBACK}KeyError: 'a'\n{HANDLING}{TRACEBACK}ValueError: no a\n",
            "ValueError: no a",
            id="handled",
        ),
        pytest.param(
            f"{TRACEBACK}OSError: odd thing\n{DIRECT}{TRACEBACK}RuntimeError: failed\n",
            "OSError: odd thing",
            id="wrapped-from",
        ),
        pytest.param(
            f"{TRACEBACK}OSError: odd thing\n{HANDLING}{TRACEBACK}RuntimeError: failed: odd thing\n",
            "OSError: odd thing",
            id="wrapped-by-words",
        ),
        pytest.param(
            f"{TRACEBACK}KeyError: Caught KeyError in DataLoader worker process 0.\n"
            f"Original {TRACEBACK}KeyError: 'label'\n",
            "KeyError: 'label'",
            id="data-loader",
        ),
        pytest.param(
            f"{TRACEBACK}ValueError: mine\n{TRACEBACK}"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
            "ValueError: mine",
            id="launcher-after-it",
        ),
        pytest.param(
            f"{TRACEBACK}torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
            f"-- Process 1 terminated with the following error:\n{TRACEBACK}ValueError: mine\n",
            "ValueError: mine",
            id="spawn",
        ),
        pytest.param(
            f"{TRACEBACK}Exception: \n\n"
            f"-- Process 1 terminated with the following error:\n{TRACEBACK}ValueError: mine\n",
            "ValueError: mine",
            id="spawn-of-torch-1",
        ),
        pytest.param(
            f"{TRACEBACK}ValueError:\n  2 rows are wrong\n",
            "ValueError: 2 rows are wrong",
            id="message-on-the-next-line",
        ),
        pytest.param(f"{TRACEBACK}acme.Broken: mine\n", "acme.Broken: mine", id="own-name"),
    ],
)
def test_the_exception_that_began_it_is_told(text, evidence):
    found = ask(log(text))
    assert (found.causes[0].id, found.causes[0].evidence) == ("python-exception", evidence)


def test_the_summary_of_a_launcher_hides_no_exception():
    text = f"{TRACEBACK}ValueError: mine\nE0801 api.py:874] failed (exitcode: 1) local_rank: 3 (pid: 1)\n"
    found = ask(log(text))
    assert (found.causes[0].id, found.causes[0].rank) == ("python-exception", 3)


def test_a_traceback_that_was_cut_off_is_an_exception():
    assert root(ask(log(f"start\n{TRACEBACK}"))) == ("python-exception", 2)
    assert root(ask(log("start\nTraceback (most recent call last):\n"))) == ("python-exception", 2)


def test_an_exception_without_a_traceback_is_the_end_where_little_follows():
    stack = "\tat org.example.Train.step(Train.java:3)\n" * 20
    assert root(ask(log(f"start\norg.example.TrainException: queue is closed\n{stack}"))) == (
        "python-exception",
        2,
    )
    went_on = log("AcmeError: no metrics\n" + "still working\n" * 20)
    assert ask(went_on).healthy
    trained_on = log("AcmeError: no\nstep 1\nstep 2\n", steps=[(2, 1, 0), (3, 2, 0)])
    assert ask(trained_on).healthy


def test_what_is_raised_after_the_end_of_the_program_is_none_of_it():
    text = f"Model saved\nError in atexit._run_exitfuncs:\n{TRACEBACK}KeyboardInterrupt\n"
    assert ask(log(text)).healthy


def test_words_that_say_little_count_only_in_the_line_of_an_exception():
    assert ask(log("the option must be set to train faster\nstep 1\n")).healthy
    found = ask(log(f"{TRACEBACK}MyError: the option must be set\n"))
    assert root(found) == ("config-error", 4)


def test_words_in_what_was_handled_are_no_cause():
    text = f"an option must be set\n{TRACEBACK}MyError: something else\n"
    assert root(ask(log(text))) == ("python-exception", 5)


def test_a_traceback_that_was_cut_off_explains_less_than_what_was_told_before():
    text = f"{TRACEBACK}RendezvousClosedError\nnoise\n{TRACEBACK}"
    assert root(ask(log(text))) == ("rendezvous-timeout", 4)


def test_of_a_chain_that_was_cut_off_the_exceptions_that_are_there_count():
    text = (
        f"{TRACEBACK}KeyError: 'iteration'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f"{TRACEBACK}"
    )
    assert root(ask(log(text))) == ("python-exception", 4)


def test_what_a_logger_tells_above_a_traceback_that_was_cut_off_is_its_exception():
    text = f"step 1\n10:11 ERROR training failed. Exception: the seed must be set\n{TRACEBACK}"
    assert root(ask(log(text))) == ("config-error", 2)


def test_a_traceback_in_one_line_of_json_has_its_exception():
    text = (
        r'{"exc_info": "Traceback (most recent call last):\n  File \"train.py\", line 3\n'
        r'    step()\nMyError: the option must be set"}'
    )
    assert root(ask(log(f"start\n{text}\n"))) == ("config-error", 2)
    found = ask(log(text.replace("the option must be set", "no words") + "\n"))
    assert root(found) == ("python-exception", 1)
    assert found.causes[0].evidence == "MyError: no words"


@pytest.mark.parametrize(
    ("above", "line"),
    [
        pytest.param(
            '  File "train.py", line 3, in step\n    raise KeyError\n', 3, id="head-cut-off"
        ),
        pytest.param("\u2570\u2500\u2500\u2500\u2500\u256f\n", 2, id="drawn-as-a-box"),
    ],
)
def test_frames_above_an_exception_make_it_one_that_was_raised(above, line):
    text = f"{above}KeyError: 'mask'\n" + "exitcode: 1\n" * 20
    assert root(ask(log(text))) == ("python-exception", line)
    assert ask(log(text.replace(above, "loaded\n" * (line - 1)))).causes[0].id == "unknown"


def test_a_traceback_may_be_cut_off_between_frames_of_any_shape():
    shifted = TRACEBACK.replace("  ", "")
    frame = 'File "run.py", line 9, in run\n'
    assert root(ask(log(f"start\n{shifted.replace('step()', 'app.ru')}"))) == (
        "python-exception",
        2,
    )
    between = f"start\n{TRACEBACK}[10:00:00] reader.cc:280: at 0\n  {frame}    run()\n"
    assert root(ask(log(between))) == ("python-exception", 2)
    assert ask(log(f"{TRACEBACK}went on\nand on\n")).healthy


def test_what_programs_live_through_explains_a_traceback_that_was_cut_off():
    late = cause("storage-io-error", "late answer", survivable=True, confidence=0.8)
    catalogue = Catalogue([late, cause("python-exception", generic=2)])
    text = f"late answer\n{TRACEBACK}"
    assert asked_of(catalogue, text).causes[0].id == "storage-io-error"
    assert asked_of(catalogue, f"{text}ValueError: mine\n").causes[0].id == "python-exception"


@pytest.mark.parametrize(
    "head",
    [
        "OutOfMemoryError         Traceback (most recent call last)\n----> 1 train()\n",
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::f() (pid=7)\n    train()\n",
    ],
    ids=["notebook", "ray"],
)
def test_the_head_of_a_traceback_only_announces_what_its_end_tells(head):
    catalogue = Catalogue([cause("cuda-out-of-memory", "OutOfMemoryError")])
    assert root(asked_of(catalogue, f"{head}OutOfMemoryError: 2 GiB\n"))[1] == 3
    assert root(asked_of(catalogue, head))[1] == 1
