"""python store_losses.py: runs MaxText and writes maxtext_losses.json, which test_maxtext.py compares with."""

import json
import tempfile

import jaxlib
import maxtext_run
import test_maxtext

with tempfile.TemporaryDirectory() as folder:
    losses = {
        q: test_maxtext._losses(maxtext_run.run(f"{folder}/{q}", q)[0])
        for q in ("te_nvfp4", "te_nvfp4_no_rht", "te_no_quant")
    }
stored = {"jaxlib": jaxlib.__version__, "processor": test_maxtext._processor(), "losses": losses}
test_maxtext.STORED.write_text(json.dumps(stored, indent=1) + "\n")
