"""What XGBoost and SDMetrics say about a synthetic table, in an environment of their own.

C2ST is computed as in "A Sobering Look at Tabular Data Generation via Probabilistic Circuits"
(arXiv 2603.23016): SDMetrics' detection score with an XGBoost classifier, real rows being those
of training. 1 says that it cannot tell them apart, 0 that it always can.

    python benchmarks/peers/table_metrics.py real.csv synthetic.csv '["names", "of", "categories"]'
"""

from __future__ import annotations

import json
import sys
import warnings

import pandas as pd
from sdmetrics.reports.single_table import QualityReport
from sdmetrics.single_table.detection.sklearn import ScikitLearnClassifierDetectionMetric
from xgboost import XGBClassifier


class XGBoostDetection(ScikitLearnClassifierDetectionMetric):
    """SDMetrics' detection with the classifier of the published figures."""

    name = "XGBoost Detection"

    @staticmethod
    def _get_classifier() -> XGBClassifier:
        return XGBClassifier(
            eval_metric="logloss", enable_categorical=True, random_state=0, n_jobs=1
        )


def main() -> None:
    """Print C2ST, shape and trend as JSON."""
    warnings.simplefilter("ignore")
    real_path, synthetic_path, categories = sys.argv[1:]
    names = json.loads(categories)
    real, synthetic = pd.read_csv(real_path), pd.read_csv(synthetic_path)
    synthetic = synthetic[real.columns]
    for name in names:
        real[name], synthetic[name] = real[name].astype(str), synthetic[name].astype(str)
    metadata = {
        "columns": {
            name: {"sdtype": "categorical" if name in names else "numerical"} for name in real
        }
    }
    c2st = XGBoostDetection.compute(real_data=real, synthetic_data=synthetic, metadata=metadata)
    report = QualityReport()
    report.generate(real, synthetic, metadata, verbose=False)
    shape, trend = report.get_properties()["Score"].tolist()
    print(json.dumps({"c2st": float(c2st), "shape": shape, "trend": trend}))


if __name__ == "__main__":
    main()
