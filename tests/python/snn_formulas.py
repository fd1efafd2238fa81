"""The layers of tessera.snn step by step, in PyTorch's operations."""

import torch


def steps(layer, x):
    """Spikes, synaptic currents (or None) and membrane potentials of a layer that takes `x` [T, batch, neurons]."""
    kind = type(layer).__name__
    beta = layer.beta.clamp(0, 1)
    syn = mem = spk = torch.zeros_like(x[0])
    results = []
    for current in x:
        reset = (mem - layer.threshold > 0).to(x.dtype)
        if kind in ("RLeaky", "RSynaptic"):
            current = current + layer.recurrent(spk)
        if layer.alpha is not None:
            syn = current = layer.alpha.clamp(0, 1) * syn + current
        if not layer.reset_delay or layer.reset_mechanism == "none":
            mem = beta * mem + current
        elif layer.reset_mechanism == "subtract":
            mem = beta * mem + current - reset * layer.threshold
        elif kind == "Leaky":
            mem = beta * mem * (1 - reset) + current
        else:
            mem = (beta * mem + current) * (1 - reset)
        spk = layer.spike_grad(mem - layer.threshold)
        if not layer.reset_delay and layer.reset_mechanism == "subtract":
            mem = mem - spk * layer.threshold
        if not layer.reset_delay and layer.reset_mechanism == "zero":
            mem = mem - spk * mem
        results.append((spk, syn, mem))
    spikes, currents, membranes = (torch.stack(each) for each in zip(*results, strict=True))
    return spikes, None if layer.alpha is None else currents, membranes


def in_snntorch(snntorch, layer, x):
    """The same by snnTorch's layer with the same arguments and parameters."""
    kind = type(layer).__name__
    arguments = {
        "beta": layer.beta.detach().clone(),
        "threshold": layer.threshold.detach().clone(),
        "learn_beta": True,
        "learn_threshold": True,
        "reset_mechanism": layer.reset_mechanism,
        "reset_delay": layer.reset_delay,
    }
    if layer.alpha is not None:
        arguments |= {"alpha": layer.alpha.detach().clone(), "learn_alpha": True}
    if kind.startswith("R"):
        arguments |= {"all_to_all": layer.all_to_all, "linear_features": layer.linear_features}
        if not layer.all_to_all:
            arguments["V"] = layer.V.detach().clone()
    other = getattr(snntorch, kind)(**arguments)
    if kind.startswith("R") and layer.all_to_all:
        other.recurrent.load_state_dict(layer.recurrent.state_dict())
    other.reset_mem()
    results = [[] for _ in range(2 if layer.alpha is None else 3)]
    states = ()
    for current in x:
        found = other(current, *states)
        states = found if kind.startswith("R") else found[1:]
        for result, each in zip(results, found, strict=True):
            result.append(each)
    spikes, *rest = (torch.stack(each) for each in results)
    return other, (spikes, None if layer.alpha is None else rest[0], rest[-1])
