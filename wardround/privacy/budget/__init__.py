"""What decides: facts about charges, the price of a training, the filter, parallel composition, calibration."""
