"""The vision tower that Megatron Bridge loads from the model's repository, for building it without the hub.

Its modules register the parameters of the tower and the projector, and compute nothing.
"""

from torch import empty
from torch.nn import Conv2d, LayerNorm, Linear, Module, ModuleList, Parameter, Sequential


class VisionTowerConfig:
    def __init__(self, config):
        self.layers, self.hidden = config.vt_num_hidden_layers, config.vt_hidden_size
        self.ffn_hidden, self.patch = config.vt_intermediate_size, config.patch_size
        self.positions = (config.init_pos_emb_height, config.init_pos_emb_width)


class ProjectorConfig:
    def __init__(self, config):
        height, width = config.merge_kernel_size
        self.hidden, self.wide = config.mm_hidden_size, config.mm_hidden_size * height * width
        self.out_hidden = config.text_hidden_size


class Mlp(Module):
    def __init__(self, config):
        super().__init__()
        self.fc0, self.fc1 = Linear(config.hidden, config.ffn_hidden), Linear(config.ffn_hidden, config.hidden)


class Layer(Module):
    def __init__(self, config):
        super().__init__()
        self.norm0, self.norm1 = LayerNorm(config.hidden), LayerNorm(config.hidden)
        self.wqkv, self.wo = Linear(config.hidden, 3 * config.hidden), Linear(config.hidden, config.hidden)
        self.mlp = Mlp(config)


class Positions(Module):
    def __init__(self, config):
        super().__init__()
        self.weight = Parameter(empty(*config.positions, config.hidden))


class Patches(Module):
    def __init__(self, config):
        super().__init__()
        self.proj = Conv2d(3, config.hidden, config.patch, config.patch)
        self.pos_emb = Positions(config)


class MoonViT3dEncoder(Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = ModuleList(Layer(config) for _ in range(config.layers))
        self.final_layernorm = LayerNorm(config.hidden)


class MoonViT3dPretrainedModel(Module):
    def __init__(self, config):
        super().__init__()
        self.patch_embed, self.encoder = Patches(config), MoonViT3dEncoder(config)


class PatchMergerMLP(Module):
    def __init__(self, config):
        super().__init__()
        self.pre_norm = LayerNorm(config.hidden)
        self.proj = Sequential(Linear(config.wide, config.wide), Module(), Linear(config.wide, config.out_hidden))
