"""draft"""
from __future__ import annotations
from typing import Any
import numpy as np
from numpy.typing import NDArray
from pointsman.models._e5_weights import BLOCK, E5Weights

GRAPH_VERSION = 0  # draft

def repack(nib):
    low, high = nib & 0x0F, nib >> 4
    values = np.concatenate([low, high], axis=-1)
    return values[..., 0::2] | (values[..., 1::2] << 4)

def build_graph(weights: E5Weights, level=0, attn="mha", gelu="gelu", skipln=True, qkv=True) -> bytes:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    h = weights.header
    inits: list = []
    nodes: list = []
    def const(name, arr):
        inits.append(numpy_helper.from_array(np.ascontiguousarray(arr), name)); return name
    def node(op, ins, out, domain="com.microsoft", **attrs):
        nodes.append(helper.make_node(op, ins, [out] if isinstance(out,str) else out, name=(out if isinstance(out,str) else out[0]), domain=domain, **attrs)); return out if isinstance(out,str) else out[0]
    def matmul(x, tensors, biases, columns, out):
        s, n = zip(*(weights.blocks(t, columns) for t in tensors))
        scales = np.concatenate(s).astype(np.float32); nib = repack(np.concatenate(n))
        rows = len(scales)
        ins=[x, const(out+".q", nib), const(out+".s", scales.reshape(-1)), "", ""]
        if biases: ins.append(const(out+".b", np.concatenate([weights.floats(b) for b in biases])))
        return node("MatMulNBits", ins, out, K=columns, N=rows, bits=4, block_size=BLOCK, accuracy_level=level)
    node("LayerNormalization", ["embeddings", const("ln.w", weights.floats("emb.ln.w")), const("ln.b", weights.floats("emb.ln.b"))], "x", domain="", epsilon=h.epsilon, axis=-1)
    x="x"
    H,F=h.hidden,h.feed_forward
    for l in range(h.layers):
        p=f"l{l}."
        if attn=="mha":
            if qkv:
                matmul(x,[p+"q.w",p+"k.w",p+"v.w"],[p+"q.b",p+"k.b",p+"v.b"],H,p+"qkv")
                node("Split",[p+"qkv"],[p+"Q",p+"K",p+"V"],domain="",axis=-1,num_outputs=3)
            else:
                for c in "qkv": matmul(x,[p+c+".w"],[p+c+".b"],H,p+c.upper())
            node("MultiHeadAttention",[p+"Q",p+"K",p+"V"],p+"ctx",num_heads=h.heads)
        matmul(p+"ctx",[p+"ao.w"],None if skipln else [p+"ao.b"],H,p+"ao")
        def norm(a,b,bias,ln,out):
            node("SkipLayerNormalization",[a,b,const(p+ln+".w",weights.floats(p+ln+".w")),const(p+ln+".b",weights.floats(p+ln+".b"))]+([const(out+".bias",weights.floats(p+bias))] if bias else []),out,epsilon=h.epsilon)
        norm(p+"ao",x,"ao.b" if skipln else None,"aln",p+"y")
        if gelu=="bias":
            matmul(p+"y",[p+"fi.w"],None,H,p+"fi"); node("BiasGelu",[p+"fi",const(p+"fib",weights.floats(p+"fi.b"))],p+"g")
        elif gelu=="fast":
            matmul(p+"y",[p+"fi.w"],None,H,p+"fi"); node("FastGelu",[p+"fi",const(p+"fib",weights.floats(p+"fi.b"))],p+"g")
        else:
            matmul(p+"y",[p+"fi.w"],[p+"fi.b"],H,p+"fi"); node("Gelu",[p+"fi"],p+"g")
        matmul(p+"g",[p+"fo.w"],None if skipln else [p+"fo.b"],F,p+"fo")
        norm(p+"fo",p+"y","fo.b" if skipln else None,"oln",p+"z"); x=p+"z"
    node("ReduceMean",[x,const("axes",np.array([1],np.int64))],"vectors",domain="",keepdims=0)
    g=helper.make_graph(nodes,"e5",[helper.make_tensor_value_info("embeddings",TensorProto.FLOAT,["batch","tokens",H])],[helper.make_tensor_value_info("vectors",TensorProto.FLOAT,["batch",H])],inits)
    m=helper.make_model(g,opset_imports=[helper.make_opsetid("",18),helper.make_opsetid("com.microsoft",1)],ir_version=9)
    return m.SerializeToString()
