"""First-order prices of a layout: parameters, memory and step time, for one row and for whole columns."""
