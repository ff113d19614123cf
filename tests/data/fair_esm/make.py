# Makes the files of this folder: a tiny ESM-2 of fair-esm, saved as the published files are, the same model saved by
# transformers, and pickles that must be refused. Run once, by hand: pip install torch transformers fair-esm
import argparse
import os
import sys
from collections import OrderedDict

import esm
import safetensors.torch
import torch
import transformers

LAYERS, HIDDEN, HEADS = 2, 8, 2
out = sys.argv[1]


def fair_model():
    torch.manual_seed(5)
    model = esm.model.esm2.ESM2(LAYERS, HIDDEN, HEADS, alphabet=esm.data.Alphabet.from_architecture("ESM-1b"))
    with torch.no_grad():
        for parameter in model.parameters():  # so that every term of the model matters
            parameter.add_(0.3 * torch.randn_like(parameter)).copy_(parameter.half())  # the same numbers in FP16
    for module in model.modules():
        if hasattr(module, "inv_freq"):  # as in the published files
            module.inv_freq.copy_(module.inv_freq.half())
    return model.eval()


def hugging_face_model(fair):
    config = transformers.EsmConfig(
        vocab_size=33, mask_token_id=32, pad_token_id=1, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=4 * HIDDEN, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, max_position_embeddings=1026, layer_norm_eps=1e-5,
        position_embedding_type="rotary", emb_layer_norm_before=False, token_dropout=True,
        attn_implementation="eager")
    hf = transformers.EsmForMaskedLM(config).eval()
    to = hf.esm
    pairs = [(to.embeddings.word_embeddings, fair.embed_tokens), (to.encoder.emb_layer_norm_after, fair.emb_layer_norm_after),
             (hf.lm_head.dense, fair.lm_head.dense), (hf.lm_head.layer_norm, fair.lm_head.layer_norm),
             (to.contact_head.regression, fair.contact_head.regression)]
    for a, b in zip(to.encoder.layer, fair.layers):
        pairs += [(a.attention.self.query, b.self_attn.q_proj), (a.attention.self.key, b.self_attn.k_proj),
                  (a.attention.self.value, b.self_attn.v_proj), (a.attention.output.dense, b.self_attn.out_proj),
                  (a.attention.LayerNorm, b.self_attn_layer_norm), (a.LayerNorm, b.final_layer_norm),
                  (a.intermediate.dense, b.fc1), (a.output.dense, b.fc2)]
    for a, b in pairs:
        a.load_state_dict(b.state_dict())
    with torch.no_grad():
        hf.lm_head.bias.copy_(fair.lm_head.bias)
    for module in hf.modules():
        if hasattr(module, "inv_freq"):
            module.inv_freq.copy_(module.inv_freq.half())
    return hf


def prefixed(name):
    return ("encoder." if name.startswith("lm_head.") else "encoder.sentence_encoder.") + name


class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)


fair = fair_model()
hf = hugging_face_model(fair)
tokens = torch.tensor([[0, 20, 5, 32, 13, 4, 18, 9, 2], [0, 12, 7, 22, 2, 1, 1, 1, 1]])
with torch.no_grad():
    a = fair(tokens)["logits"]
    b = hf(input_ids=tokens, attention_mask=(tokens != 1).long()).logits
    difference = ((a - b).abs() * (tokens != 1)[..., None]).max().item()
print("fair-esm and transformers agree within", difference, "of", a.abs().max().item())
assert difference < 1e-5 * a.abs().max().item()
with torch.no_grad():
    contacts = fair.predict_contacts(tokens[:1])[0]
safetensors.torch.save_file({"tokens": tokens.int(), "logits": a, "contacts": contacts}, out + "/io.safetensors")

state = fair.state_dict()
contact = OrderedDict((name, state.pop(name)) for name in list(state) if name.startswith("contact_head."))
settings = argparse.Namespace(
    arch="roberta_base", encoder_layers=LAYERS, encoder_embed_dim=HIDDEN, encoder_attention_heads=HEADS,
    encoder_ffn_embed_dim=4 * HIDDEN, token_dropout=True, activation_fn="gelu", dropout=0.0, lr=[4e-4],
    adam_betas="(0.9, 0.98)", max_tokens=None, seed=1, big=1 << 40)
published = OrderedDict((prefixed(name), tensor) for name, tensor in state.items())
torch.save({"cfg": {"model": settings}, "model": published}, out + "/tiny.pt")
torch.save({"model": contact}, out + "/tiny-contact-regression.pt")

# Names without prefixes, args instead of cfg, FP16, the contact head inside, tensors that are views.
older = OrderedDict((name, tensor.half()) for name, tensor in {**state, **contact}.items())
older._metadata = state._metadata
older["layers.0.fc1.weight"] = older["layers.0.fc1.weight"].t().contiguous().t()
older["layers.1.fc2.bias"] = torch.stack([older["layers.1.fc2.bias"]] * 2)[1]
torch.save({"args": argparse.Namespace(layers=LAYERS, embed_dim=HIDDEN, attention_heads=HEADS), "model": older},
           out + "/older_fp16.pt")
hf.save_pretrained(out + "/hf")
for name in os.listdir(out + "/hf"):
    if name not in ("config.json", "model.safetensors"):
        os.remove(out + "/hf/" + name)

torch.save({"cfg": {"model": settings}, "model": Evil()}, out + "/evil.pt")
torch.save({"model": {}}, out + "/old_format.pt", _use_new_zipfile_serialization=False)
