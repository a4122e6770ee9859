"""Their side: the pieces of Flux2KleinPipeline's run, in float32."""

import numpy as np
import torch
from diffusers import Flux2KleinPipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu, retrieve_timesteps

from small_models import make_scheduler


def schedule(tokens, steps):
    scheduler = make_scheduler()
    retrieve_timesteps(
        scheduler, steps, sigmas=np.linspace(1.0, 1 / steps, steps), mu=compute_empirical_mu(tokens, steps)
    )
    return scheduler.sigmas


@torch.no_grad()
def velocity(transformer, latents, text, sigma, guidance=None):
    """latents [128, h, w], text [T, Cctx] → [128, h, w]."""
    x = latents[None]
    v = transformer(
        hidden_states=Flux2KleinPipeline._pack_latents(x),
        encoder_hidden_states=text[None],
        timestep=sigma.reshape(1),
        guidance=None if guidance is None else torch.tensor([guidance]),
        img_ids=Flux2KleinPipeline._prepare_latent_ids(x),
        txt_ids=Flux2KleinPipeline._prepare_text_ids(text[None]),
        return_dict=False,
    )[0]
    return v[0].T.reshape(latents.shape)


def _statistics(vae):
    deviation = torch.sqrt(vae.bn.running_var + vae.config.batch_norm_eps)
    return vae.bn.running_mean.view(1, -1, 1, 1), deviation.view(1, -1, 1, 1)


@torch.no_grad()
def encode(vae, picture):
    """picture [3, H, W] in −1…1 → latents [128, h, w]."""
    mean, deviation = _statistics(vae)
    moments = vae.encode(picture[None]).latent_dist.mode()
    return ((Flux2KleinPipeline._patchify_latents(moments) - mean) / deviation)[0]


@torch.no_grad()
def decode(vae, latents):
    """latents [128, h, w] → picture [3, H, W], not clamped."""
    mean, deviation = _statistics(vae)
    return vae.decode(Flux2KleinPipeline._unpatchify_latents(latents[None] * deviation + mean)).sample[0]


@torch.no_grad()
def states_of(pipeline, geometry, shape, **arguments):
    """A pipeline's own call: latents [128, h, w] after every step."""
    states = []

    def keep(_, step, timestep, values):
        states.append(values["latents"][0].T.reshape(shape).clone())
        return {}

    pipeline(
        output_type="latent",
        callback_on_step_end=keep,
        max_sequence_length=geometry.text_length,
        text_encoder_out_layers=geometry.text_layers,
        **arguments,
    )
    return states


def run_pipeline(pipeline, geometry, prompt, noise, steps, guidance):
    return states_of(
        pipeline,
        geometry,
        noise.shape,
        prompt=prompt,
        height=16 * noise.shape[1],
        width=16 * noise.shape[2],
        num_inference_steps=steps,
        guidance_scale=guidance,
        latents=noise[None].clone(),
    )


@torch.no_grad()
def text_states(pipeline, geometry, prompt):
    """Token ids, mask and the states of one prompt, padding included."""
    text = pipeline.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    tokens = pipeline.tokenizer(
        text, return_tensors="pt", padding="max_length", truncation=True, max_length=geometry.text_length
    )
    states, _ = pipeline.encode_prompt(
        prompt=prompt, max_sequence_length=geometry.text_length, text_encoder_out_layers=geometry.text_layers
    )
    return tokens["input_ids"][0], tokens["attention_mask"][0], states[0]
