#!/usr/bin/env python3
"""Times Hugging Face's EsmForMaskedLM on CPU cores, for cpu_side_by_side.sh.

Needs torch and transformers, which are no part of this repository. Prints one line of JSON: real tokens a second
(<cls> and <eos> counted, padding not), peak memory, and what was run.

  hugging_face_cpu.py --fasta pool.fasta --layers 4 --hidden 128 --heads 4 --what train --batch 32 --sorted --batches 8

The sequences of the file, in its order or sorted by length, make batches of --batch, each padded to its longest. Of
these, --batches evenly spaced ones are run, after one unmeasured batch: of a sorted file that is the whole range of
lengths.
"""
import argparse
import json
import resource
import time

import torch
from transformers import EsmConfig, EsmForMaskedLM, logging

CLS, PAD, EOS, UNK, MASK = 0, 1, 2, 3, 32
IDS = {letter: 4 + i for i, letter in enumerate("LAGVSERTIDPKQNFYMHWCXBUZO")}


def read_fasta(path, max_tokens):
    sequences, current = [], []
    with open(path) as lines:
        for line in lines:
            if line.startswith(">"):
                if current:
                    sequences.append("".join(current))
                current = []
            else:
                current.append(line.strip())
    sequences.append("".join(current))
    return [[CLS] + [IDS.get(c, UNK) for c in s[: max_tokens - 2]] + [EOS] for s in sequences]


def make_batches(sequences, size, by_length, count):
    order = sorted(sequences, key=len) if by_length else sequences
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    return [batches[(2 * i + 1) * len(batches) // (2 * count)] for i in range(count)]


def pad(batch):
    longest = max(map(len, batch))
    ids = torch.tensor([s + [PAD] * (longest - len(s)) for s in batch])
    return ids, (ids != PAD).long()


def mask(ids, attention):
    """15 % of the residues: 80 % <mask>, 10 % random, 10 % as they are, as transformers' collator does it."""
    labels = ids.clone()
    chosen = (torch.rand(ids.shape) < 0.15) & (attention == 1) & (ids > EOS)
    labels[~chosen] = -100
    word = torch.rand(ids.shape)
    ids = torch.where(chosen & (word < 0.8), MASK, ids)
    ids = torch.where(chosen & (word >= 0.9), torch.randint_like(ids, 4, 24), ids)
    return ids, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fasta", required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--heads", type=int, required=True)
    parser.add_argument("--what", choices=["train", "embed"], required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sorted", action="store_true")
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    model = EsmForMaskedLM(
        EsmConfig(
            vocab_size=33, mask_token_id=MASK, pad_token_id=PAD, hidden_size=args.hidden,
            num_hidden_layers=args.layers, num_attention_heads=args.heads, intermediate_size=4 * args.hidden,
            position_embedding_type="rotary", max_position_embeddings=1026, token_dropout=True,
            emb_layer_norm_before=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01)

    def train(ids, attention):
        ids, labels = mask(ids, attention)
        loss = model(input_ids=ids, attention_mask=attention, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def embed(ids, attention):
        with torch.inference_mode():
            model.esm(input_ids=ids, attention_mask=attention)  # without the head

    run = train if args.what == "train" else embed
    model.train(args.what == "train")
    batches = make_batches(read_fasta(args.fasta, args.max_tokens), args.batch, args.sorted, args.batches)
    run(*pad(min(batches, key=lambda batch: max(map(len, batch)))))
    tokens = slots = 0
    start, processor = time.perf_counter(), time.process_time()
    for batch in batches:
        ids, attention = pad(batch)
        run(ids, attention)
        tokens += int(attention.sum())
        slots += ids.numel()
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    print(json.dumps({
        "tokens_per_s": tokens / seconds, "tokens_per_processor_s": tokens / processor,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "real_share": tokens / slots,
        "tokens": tokens, "attention": model.config._attn_implementation}))


if __name__ == "__main__":
    main()
