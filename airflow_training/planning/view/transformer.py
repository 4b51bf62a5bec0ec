"""The computation view of a transformer that is described by its sizes.

Kernels are those of Megatron-LM: fused bias and GeLU, fused bias, dropout and residual, one product
for query, key and value, logits and loss in float32 (Narayanan et al. 2021, arXiv:2104.04473, section
4.2). Models with a gated feed-forward part are taken to be of the Llama kind: RMS norm, rotary positions,
neither bias nor dropout. Models with fused attention, which came later, are taken to drop nothing out.
"""

from __future__ import annotations

from math import ceil

from airflow_training.planning.view.builder import ViewBuilder
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.strategy import TransformerModel

ALWAYS = ("selective", "full")
FULL = ("full",)
NEVER: tuple[str, ...] = ()


def computation(model: TransformerModel) -> ComputationView:
    """Return the forward pass over one sequence, as units: embedding, layers, head."""
    writer = _Writer(model)
    writer.embedding()
    writer.layers()
    writer.head()
    return writer.build.view()


class _Writer:
    def __init__(self, model: TransformerModel) -> None:
        self.model = model
        self.build = ViewBuilder(f"{model.family}-{model.layers}x{model.hidden}")
        self.rows = (("batch", 1), ("sequence", model.seq))
        self.wide = (*self.rows, ("hidden", model.hidden))
        self.llama = model.mlp in {"swiglu", "geglu"}
        self.drops = not self.llama and model.attention == "unfused"
        self.stream = ""
        """The residual stream as it stands."""

    def embedding(self) -> None:
        model, build = self.model, self.build
        build.tensor("tokens", self.rows, dtype="int64", kind="input")
        build.parameter("embedding.weight", ("vocab", model.vocab), ("hidden", model.hidden))
        looked_up = build.tensor("embedding.out", self.wide)
        build.operator(
            "embedding", "embedding", ("tokens", "embedding.weight"), (looked_up,), recompute=NEVER
        )
        self.stream = looked_up
        if not self.llama:
            self._positions()
        build.unit("embedding")

    def _positions(self) -> None:
        model, build = self.model, self.build
        build.tensor("positions", self.rows[1:], dtype="int64", kind="buffer")
        build.parameter("positions.weight", ("positions", model.seq), ("hidden", model.hidden))
        looked_up = build.tensor("positions.out", self.wide[1:])
        build.operator(
            "positions",
            "embedding",
            ("positions", "positions.weight"),
            (looked_up,),
            recompute=NEVER,
        )
        self.stream = self._elementwise("embedding.add", "add", self.stream, looked_up, again=NEVER)
        if self.drops:
            self.stream = self._dropout("embedding.dropout", self.stream, again=NEVER)

    def layers(self) -> None:
        stream = self.stream
        normed = self._norm("attention.norm", stream, again=FULL)
        stream = self._join("attention.add", self._attention(normed), stream)
        normed = self._norm("mlp.norm", stream, again=FULL)
        branch = self._experts(normed) if self.model.experts else self._mlp(normed)
        self.stream = self._join("mlp.add", branch, stream)
        self.build.unit("layer", repeat=self.model.layers)

    def head(self) -> None:
        model, build = self.model, self.build
        normed = self._norm("head.norm", self.stream, again=NEVER)
        table = "embedding.weight"
        if not model.tied_embeddings:
            table = build.parameter("head.weight", ("vocab", model.vocab), ("hidden", model.hidden))
        dims = (*self.rows, ("vocab", model.vocab))
        logits = build.tensor("logits", dims)
        build.operator(
            "logits", "matmul", (normed, table), (logits,), equation="bsh,vh->bsv", recompute=NEVER
        )
        exact = build.tensor("logits.float", dims, dtype="float32")
        build.operator(
            "logits.float", "elementwise", (logits,), (exact,), function="cast", recompute=NEVER
        )
        build.tensor("labels", self.rows, dtype="int64", kind="input")
        build.tensor("loss", self.rows, dtype="float32", kind="output")
        build.operator("loss", "cross_entropy", (exact, "labels"), ("loss",), recompute=NEVER)
        build.unit("head")

    def _attention(self, normed: str) -> str:
        model, build = self.model, self.build
        kv_heads = model.kv_heads or model.heads
        head = ("head", model.hidden // model.heads)
        fused = ("heads+kv_heads", model.heads + 2 * kv_heads)
        mixed = self._linear("attention.qkv", normed, (fused, head), "bsh,had->bsad", bias="ad")
        heads = (("heads", model.heads), ("kv_heads", kv_heads), ("kv_heads", kv_heads))
        parts = [
            build.tensor(f"attention.{name}", (*self.rows, count, head))
            for name, count in zip("qkv", heads, strict=True)
        ]
        build.operator(
            "attention.split", "split", (mixed,), parts, dim=2, interleaved=True, recompute=FULL
        )
        if self.llama:
            parts[:2] = [
                self._elementwise(f"{part}.rotary", "rotary", part, flops=3.0) for part in parts[:2]
            ]
        core = self._flash if model.attention == "flash" else self._unfused
        context = core(*parts)
        dims = (("heads", model.heads), head)
        weight = build.parameter("attention.proj.weight", *dims, ("hidden", model.hidden))
        out = build.tensor("attention.proj", self.wide)
        build.operator(
            "attention.proj",
            "matmul",
            (context, weight),
            (out,),
            equation="bsad,adh->bsh",
            recompute=FULL,
        )
        return out

    def _flash(self, query: str, key: str, value: str) -> str:
        build = self.build
        context = build.tensor("attention.context", build.dims(query))
        batch, sequence, heads, _ = build.dims(query)
        rows = build.tensor("attention.rows", (batch, heads, sequence), dtype="float32")
        build.operator(
            "attention.core",
            "attention",
            (query, key, value),
            (context, rows),
            causal=self.model.family != "bert",
            recompute=ALWAYS,
        )
        return context

    def _unfused(self, query: str, key: str, value: str) -> str:
        build = self.build
        batch, sequence, heads, _ = build.dims(query)
        square = (batch, heads, sequence, ("keys", sequence[1]))
        scores = build.tensor("attention.scores", square)
        build.operator(
            "attention.scores",
            "matmul",
            (query, key),
            (scores,),
            equation="bsad,btad->bast",
            recompute=ALWAYS,
        )
        weights = build.tensor("attention.weights", square)
        build.operator("attention.softmax", "softmax", (scores,), (weights,), recompute=ALWAYS)
        if self.drops:
            weights = self._dropout("attention.dropout", weights, again=ALWAYS)
        context = build.tensor("attention.context", build.dims(query))
        build.operator(
            "attention.context",
            "matmul",
            (weights, value),
            (context,),
            equation="bast,btad->bsad",
            recompute=ALWAYS,
        )
        return context

    def _mlp(self, normed: str) -> str:
        model, build = self.model, self.build
        ffn = ("ffn", model.ffn or 4 * model.hidden)
        inner = build.tensor("mlp.act", (*self.rows, ffn))
        if self.llama:
            wide = self._linear("mlp.up", normed, (("", 2), ffn), "bsh,hgf->bsgf")
            # Llama's code multiplies in a kernel of its own, and so keeps the gate as well.
            gate = build.tensor("mlp.gate", (*self.rows, ffn))
            build.operator("mlp.act", "gated", (wide,), (inner, gate), recompute=FULL)
        else:
            wide = self._linear("mlp.up", normed, (ffn,), "bsh,hf->bsf")
            bias = build.parameter("mlp.up.bias", ffn)
            build.operator(
                "mlp.act",
                "elementwise",
                (wide, bias),
                (inner,),
                function="relu" if model.mlp == "relu" else "bias_gelu",
                flops=8.0,
                recompute=FULL,
            )
        return self._linear("mlp.down", inner, (("hidden", model.hidden),), "bsf,fh->bsh")

    def _experts(self, normed: str) -> str:
        """Add a mixture of experts whose router is balanced: each expert gets its share of rows."""
        model, build = self.model, self.build
        experts = ("experts", model.experts)
        router = build.parameter(
            "router.weight", ("hidden", model.hidden), ("router", model.experts)
        )
        scores = build.tensor("router", (*self.rows, ("router", model.experts)))
        build.operator(
            "router", "matmul", (normed, router), (scores,), equation="bsh,he->bse", recompute=FULL
        )
        shares = build.tensor("router.softmax", build.dims(scores))
        build.operator("router.softmax", "softmax", (scores,), (shares,), recompute=FULL)
        best = (*self.rows, ("choices", model.experts_per_token))
        gates = build.tensor("router.gates", best)
        choice = build.tensor("router.choice", best, dtype="int64")
        build.operator("router.top_k", "top_k", (shares,), (gates, choice), recompute=FULL)

        count = ceil(self.build.batch * model.seq * model.experts_per_token / model.experts)
        rows, hidden = ("batch*sequence", count), ("hidden", model.hidden)
        sorted_ = build.tensor("experts.rows", (experts, rows, hidden))
        build.operator("experts.dispatch", "dispatch", (normed, choice), (sorted_,), recompute=FULL)
        ffn = ("ffn", model.expert_ffn or model.ffn or 4 * model.hidden)
        inner = build.tensor("experts.act", (experts, rows, ffn))
        if self.llama:
            two = ("", 2)
            wide = self._expert_linear("experts.up", sorted_, (two, ffn), "erh,ehgf->ergf")
            build.operator("experts.act", "gated", (wide,), (inner,), recompute=FULL)
        else:
            wide = self._expert_linear("experts.up", sorted_, (ffn,), "erh,ehf->erf")
            build.operator(
                "experts.act",
                "elementwise",
                (wide,),
                (inner,),
                function=model.mlp,
                flops=8.0,
                recompute=FULL,
            )
        back = self._expert_linear("experts.down", inner, (hidden,), "erf,efh->erh")
        out = build.tensor("experts.out", self.wide)
        build.operator("experts.combine", "combine", (back, gates, choice), (out,), recompute=FULL)
        return out

    def _expert_linear(
        self, name: str, source: str, out: tuple[tuple[str, int], ...], equation: str
    ) -> str:
        build = self.build
        experts, rows, width = build.dims(source)
        weight = build.parameter(f"{name}.weight", experts, width, *out)
        result = build.tensor(name, (experts, rows, *out))
        build.operator(
            name, "matmul", (source, weight), (result,), equation=equation, recompute=FULL
        )
        return result

    def _linear(
        self,
        name: str,
        source: str,
        out: tuple[tuple[str, int], ...],
        equation: str,
        bias: str = "",
    ) -> str:
        """Add a product of `source` with a weight whose last dimensions are `out`."""
        build = self.build
        width = build.dims(source)[-1]
        inputs = [source, build.parameter(f"{name}.weight", width, *out)]
        if bias and not self.llama:
            inputs.append(build.parameter(f"{name}.bias", *out))
            left, _, right = equation.partition("->")
            equation = f"{left},{bias}->{right}"
        result = build.tensor(name, (*self.rows, *out))
        build.operator(name, "matmul", inputs, (result,), equation=equation, recompute=FULL)
        return result

    def _norm(self, name: str, source: str, *, again: tuple[str, ...]) -> str:
        build = self.build
        hidden = ("hidden", self.model.hidden)
        inputs = [source, build.parameter(f"{name}.weight", hidden)]
        if not self.llama:
            inputs.append(build.parameter(f"{name}.bias", hidden))
        result = build.tensor(name, self.wide)
        build.operator(name, "norm", inputs, (result,), recompute=again)
        return result

    def _join(self, name: str, branch: str, stream: str) -> str:
        """Add a branch to the residual stream, with its bias and dropout where the model has them."""
        build = self.build
        if self.llama:
            return self._elementwise(name, "add", branch, stream)
        results = [build.tensor(name, self.wide)]
        if self.drops:
            results.append(build.tensor(f"{name}.mask", self.wide, dtype="bool"))
        bias = build.parameter(f"{name}.bias", ("hidden", self.model.hidden))
        build.operator(
            name,
            "elementwise",
            (branch, bias, stream),
            results,
            function="bias_dropout_add",
            flops=4.0,
            recompute=FULL,
        )
        return results[0]

    def _elementwise(
        self,
        name: str,
        function: str,
        *inputs: str,
        flops: float = 1.0,
        again: tuple[str, ...] = FULL,
    ) -> str:
        build = self.build
        result = build.tensor(name, build.dims(inputs[0]))
        build.operator(
            name, "elementwise", inputs, (result,), function=function, flops=flops, recompute=again
        )
        return result

    def _dropout(self, name: str, source: str, *, again: tuple[str, ...]) -> str:
        build = self.build
        result = build.tensor(name, build.dims(source))
        mask = build.tensor(f"{name}.mask", build.dims(source), dtype="bool")
        build.operator(
            name,
            "elementwise",
            (source,),
            (result, mask),
            function="dropout",
            flops=2.0,
            recompute=again,
        )
        return result
