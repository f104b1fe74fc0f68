"""UNO in Keras: the CANDLE network of drug response over several screens, towers for cell and drugs.

The network of candle/uno.py; its facts and their source stand there.
"""

import keras
from candle_layers import drug_pair_response

batch_size = 32
train_samples = 62_000
validation_samples = 18_000
last_batch = "keep"
notes = ["samples of an epoch: an estimate, 62,000 ± 2,500 (22 drugs with 80,213 rows, of which 17 drugs train)"]
epochs = 3

WIDTHS = {"cell": 949, "descriptors": 5_270, "fingerprints": 2_048}
model = drug_pair_response(WIDTHS, ("cell", *("descriptors", "fingerprints") * 2), beside=13)
model.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse")
