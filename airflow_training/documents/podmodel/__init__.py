"""What a PodTemplateSpec may hold, as a table made from the Kubernetes client's own models.

Importing the client costs more than a second, so the table ships with the package:
`python -m airflow_training.documents.podmodel.generate` renews it.
"""
