"""Build, train a reward model, score, pair, train: ``python examples/from_problems_to_policy.py``.

The embedded model on embedded problems, offline and small: the steps are those of a real run, the
numbers are not.
"""

import sys
from pathlib import Path

import fsdpo_data as fd
import fsdpo_train as ft

out = Path(sys.argv[1] if sys.argv[1:] else "runs/example")
data = fd.build(limit=16, samples=8, max_tokens=160, engine="transformers", out=out / "data")
print(data.solutions().select("outcome").collect()["outcome"].value_counts())

prm = ft.PrmConfig(
    data=data.path, model="tiny", out=out / "prm", lr=1e-3, batch_size=32, grad_accum=1
)
ft.train_prm(prm)
scored = data.score(prm=str(out / "prm"), engine="transformers", out=out / "scored")
pairs = scored.pair(top=2, out=out / "pairs")
print(pairs.pairs().select("chosen", "rejected").head(1).collect().to_dicts())

report = ft.train_dpo(
    ft.DpoConfig(data=pairs.path, model="tiny", out=out / "policy", lr=1e-4, beta=1.0)
)
print(f"{report.out}: loss {report.loss:.3f} after {report.steps} steps")
