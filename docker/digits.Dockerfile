# The training image of the digits example: a plain PyTorch image, nothing of ours inside.
#   docker build -f docker/digits.Dockerfile -t airflow-training/digits .
FROM python:3.11-slim
RUN pip install --no-cache-dir torch scikit-learn numpy
WORKDIR /workspace
COPY dags/examples/digits/train.py .
CMD ["python", "train.py"]
