# Airflow with airflow-training installed. Build from the repository root:
#   docker build -f docker/airflow.Dockerfile -t airflow-training/airflow:0.2.0 .
ARG AIRFLOW_VERSION=3.3.2
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim-bookworm AS wheel
WORKDIR /source
# Only what the wheel is built from: a change of tests or docs does not rebuild the image.
COPY pyproject.toml README.md LICENSE ./
COPY airflow_training airflow_training
COPY operators operators
COPY sensors sensors
COPY frameworks frameworks
COPY dags dags
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# Runs as the image's own user `airflow` (50000), group 0.
FROM apache/airflow:${AIRFLOW_VERSION}-python${PYTHON_VERSION}
COPY --chown=airflow:root constraints.txt /opt/airflow-training/constraints.txt
COPY --from=wheel --chown=airflow:root /wheels /opt/airflow-training/wheels
RUN wheel="$(echo /opt/airflow-training/wheels/*.whl)" \
    && pip install --no-cache-dir --constraint /opt/airflow-training/constraints.txt "${wheel}[kubernetes,postgres]" \
    && rm -r /opt/airflow-training
# Owned by the image's user, so that a volume mounted there is too; group 0 may write for any other.
RUN mkdir -m 775 /opt/airflow/jobs /opt/airflow/training
# The loader turns every job file under /opt/airflow/jobs into a DAG.
COPY --chown=airflow:root dags /opt/airflow/dags
ENV AIRFLOW__TRAINING__JOBS_FOLDER=/opt/airflow/jobs
