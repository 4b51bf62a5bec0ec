"""Comments follow the fields above which they stand."""

from __future__ import annotations

from tests.interchange.reading import only

JOB = """\
# Who may use it: everybody.
apiVersion: batch/v1
kind: Job
metadata: {name: digits}
spec:
  # Taken apart when it is done.
  template:
    spec:
      restartPolicy: Never
      containers:
        # The image of the team.
        - name: train
          image: ghcr.io/acme/digits:1.4
          # Not a comment of ours: the script follows.
          command:
            - sh
            - -c
            - |
              # prepare
              python train.py
          env:
            # Read by train.py.
            - {name: LEVEL, value: info}
            # Never read.
            - {name: OLD, value: "1"}
  # Nobody waits longer.
  activeDeadlineSeconds: 60
"""


def above(text: str, what: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return lines[next(i for i, line in enumerate(lines) if line.startswith(what)) - 1]


def test_comments_stand_above_the_fields_that_were_kept():
    text = only(JOB).text
    assert above(text, "apiVersion:") == "# Who may use it: everybody."
    assert above(text, "- name: main") == "# The image of the team."
    assert above(text, "- name: LEVEL") == "# Read by train.py."
    assert above(text, "activeDeadlineSeconds:") == "# Nobody waits longer."


def test_a_line_of_a_script_is_no_comment():
    assert only(JOB).text.count("# prepare") == 1


def test_a_comment_above_what_was_refused_goes_with_it():
    text = only(JOB.replace("  # Nobody", "  # By hand.\n  ownHand: true\n  # Nobody")).text
    assert "By hand" not in text
    assert "Nobody waits" in text
