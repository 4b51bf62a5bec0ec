# The training image of the examples (digits, measure_cluster): PyTorch and nothing of ours inside.
#   docker build -f docker/digits.Dockerfile -t airflow-training/digits:0.1.0 .
FROM python:3.11-slim-bookworm AS packages
COPY constraints.txt /constraints.txt
# PyTorch's own index has builds for CPUs only, gigabytes smaller:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=... takes them.
ARG PIP_EXTRA_INDEX_URL=
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --constraint /constraints.txt torch scikit-learn numpy

FROM python:3.11-slim-bookworm
COPY --from=packages /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /workspace
COPY dags/examples/digits/train.py dags/examples/measure_cluster/measure.py ./
# Not root, so that it runs where PodSecurity is `restricted`; a number, so that the kubelet can tell.
USER 65532:65532
CMD ["python", "train.py"]
