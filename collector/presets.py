"""Which metric families each kind of server is asked for (glob patterns on the family's name).

Names as the servers of late 2026 expose them: Triton 2.51, vLLM 0.32 and llama.cpp were looked at themselves; TGI, SGLang and the
DCGM exporter are by their documentation.
"""

from __future__ import annotations

PRESETS: dict[str, tuple[str, ...]] = {
    "triton": (
        "nv_inference_*",  # success, failure{reason}, count, exec_count, *_duration_us, pending_request_count
        "nv_gpu_*",
        "nv_energy_consumption",
        "nv_cpu_*",
        "nv_cache_*",
        "nv_pinned_memory_pool_used_bytes",
    ),
    "vllm": (
        "vllm:num_requests_*",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",  # before 0.10
        "vllm:num_preemptions*",
        "vllm:admission_rejections*",
        "vllm:request_success*",
        "vllm:*_queries*",
        "vllm:*_hits*",
        "vllm:prompt_tokens*",
        "vllm:generation_tokens*",
        "vllm:iteration_tokens_total",
        "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "vllm:request_time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:request_*_time_seconds",
    ),
    "tgi": ("tgi_request_*", "tgi_batch_*", "tgi_queue_size"),
    "sglang": ("sglang:*",),
    "llamacpp": ("llamacpp:*",),
    "dcgm": ("DCGM_FI_*", "DCGM_EXP_*"),
    "truetail-target": ("truetail_*", "target_*", "process_cpu_seconds*", "process_resident_memory_bytes"),
}
NOISE = ("*_created", "go_*", "python_*", "promhttp_*")
EVERYTHING = ("*",)
