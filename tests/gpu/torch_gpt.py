"""GPT-2 as PyTorch users write it for speed: torch.compile, SDPA, fused AdamW, FP16 with GradScaler or BF16 by autocast.
Usage: torch_gpt.py fp16|bf16 LAYERS HIDDEN HEADS SEQUENCE MICRO. Prints {"tokens_per_second": …} of the median step, two
micro-batches a step as gpu-check has mtrain do."""
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, hidden, heads, sequence, vocab):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, hidden), nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, self.head.weight.shape[0]), targets.view(-1))


def main():
    compute = sys.argv[1]
    layers, hidden, heads, sequence, micro = map(int, sys.argv[2:])
    torch.manual_seed(1)
    model = torch.compile(GPT(layers, hidden, heads, sequence, 50304).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=compute == "fp16")
    dtype = torch.float16 if compute == "fp16" else torch.bfloat16
    tokens = torch.randint(50257, (micro, sequence + 1), device="cuda")
    times = []
    for _ in range(12):
        torch.cuda.synchronize()
        begin = time.time()
        for _ in range(2):
            with torch.autocast("cuda", dtype=dtype):
                loss = model(tokens[:, :-1], tokens[:, 1:]) / 2
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - begin)
    print(json.dumps({"tokens_per_second": 2 * micro * sequence / statistics.median(times[4:])}))


main()
