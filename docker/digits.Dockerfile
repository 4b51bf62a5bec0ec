# The training image of the examples (digits, measure_cluster): PyTorch for CPUs, and this package, which they import.
#   docker build -f docker/digits.Dockerfile -t airflow-training/digits:0.2.0 .
# PyTorch is Debian's own build: for CPUs only, on any machine, at a version of Debian's and not of constraints.txt.
FROM debian:trixie-slim AS wheel
RUN apt-get update -q && apt-get install -qy --no-install-recommends python3-hatchling python3-pip
WORKDIR /source
# Only what the wheel is built from: a change of tests or docs does not rebuild the image.
COPY pyproject.toml README.md LICENSE ./
COPY airflow_training airflow_training
COPY operators operators
COPY sensors sensors
COPY frameworks frameworks
COPY dags dags
RUN pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

FROM debian:trixie-slim
RUN apt-get update -q && apt-get install -qy --no-install-recommends \
        python-is-python3 python3-fsspec python3-pip python3-safetensors python3-sklearn python3-torch python3-xxhash \
    && rm -rf /var/lib/apt/lists/*
# Without what Airflow needs of it: a training imports `airflow_training.checkpoints` only.
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-index --break-system-packages --root-user-action=ignore /wheels/*.whl && rm -r /wheels
# Debian builds PyTorch without libuv.
ENV PYTHONUNBUFFERED=1 USE_LIBUV=0
WORKDIR /workspace
COPY dags/examples/digits/train.py dags/examples/measure_cluster/measure.py ./
# Not root, so that it runs where PodSecurity is `restricted`; a number, so that the kubelet can tell.
USER 65532:65532
CMD ["python", "train.py"]
