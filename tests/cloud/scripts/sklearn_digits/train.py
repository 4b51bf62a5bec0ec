"""Classification of digits by a pipeline that is searched over, kept by joblib."""

import json
from pathlib import Path

import joblib
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x, y = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.25, random_state=0)
pipeline = make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=0))
search = GridSearchCV(pipeline, {"sgdclassifier__alpha": [1e-4, 1e-2]}, cv=3)
search.fit(train_x, train_y)
loss = log_loss(test_y, search.predict_proba(test_x))
print("best", search.best_params_, "loss", repr(float(loss)))
Path("models").mkdir(exist_ok=True)
joblib.dump(search.best_estimator_, "models/digits.joblib")
Path("models/scores.json").write_text(
    json.dumps({"loss": float(loss), "accuracy": float(search.score(test_x, test_y))})
)
