# Airflow with airflow-training installed. Build from the repository root:
#   docker build -f docker/airflow.Dockerfile -t airflow-training/airflow .
ARG AIRFLOW_VERSION=3.3.2
FROM apache/airflow:${AIRFLOW_VERSION}-python3.11

# Only what the wheel is built from: a change of tests or docs does not rebuild the image.
COPY --chown=airflow:root pyproject.toml README.md LICENSE /opt/airflow-training/
COPY --chown=airflow:root airflow_training /opt/airflow-training/airflow_training
COPY --chown=airflow:root operators /opt/airflow-training/operators
COPY --chown=airflow:root sensors /opt/airflow-training/sensors
COPY --chown=airflow:root frameworks /opt/airflow-training/frameworks
COPY --chown=airflow:root dags /opt/airflow-training/dags
RUN pip install --no-cache-dir "/opt/airflow-training[postgres]" "apache-airflow==${AIRFLOW_VERSION}"

# The loader turns every job file under /opt/airflow/jobs into a DAG.
COPY --chown=airflow:root dags /opt/airflow/dags
ENV AIRFLOW__TRAINING__JOBS_FOLDER=/opt/airflow/jobs
