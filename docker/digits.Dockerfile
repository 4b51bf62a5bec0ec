# The training image of the digits example: PyTorch for CPUs, nothing of ours inside.
#   docker build -f docker/digits.Dockerfile -t airflow-training/digits:0.1.0 .
FROM python:3.11-slim-bookworm AS packages
COPY constraints.txt /constraints.txt
# The CPU builds of the same pinned version: gigabytes smaller.
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --constraint /constraints.txt \
       --extra-index-url https://download.pytorch.org/whl/cpu torch scikit-learn numpy

FROM python:3.11-slim-bookworm
COPY --from=packages /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /workspace
COPY dags/examples/digits/train.py .
# Not root, so that it runs where PodSecurity is `restricted`; a number, so that the kubelet can tell.
USER 65532:65532
CMD ["python", "train.py"]
