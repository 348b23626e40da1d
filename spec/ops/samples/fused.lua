--- Samples of rows that join several ops for GPUs: what can be called wrongly.
return { closed = {}, constant = {}, wrong = {} }
