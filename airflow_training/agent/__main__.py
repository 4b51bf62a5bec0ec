"""Entry of the `.pyz`."""

from airflow_training.agent.main import main

raise SystemExit(main())
