mock_provider "aws" {
  mock_resource "aws_instance" {
    defaults = { public_ip = "203.0.113.1", private_ip = "10.0.0.9" }
  }
}

variables {
  public_key      = "ssh-ed25519 AAAA me"
  allowed_network = "198.51.100.0/24"
}

run "a_master_and_three_workers" {
  assert {
    condition     = length(module.machines.workers) == 3
    error_message = "three workers by default"
  }
  assert {
    condition     = output.hostlist == "master slots=1\nworker1 slots=1\nworker2 slots=1\nworker3 slots=1"
    error_message = output.hostlist
  }
  assert {
    condition     = output.master == "admin@203.0.113.1"
    error_message = output.master
  }
  assert {
    condition     = strcontains(output.inventory, "worker3 ansible_host=10.0.0.9") && strcontains(output.inventory, "ProxyJump=admin@203.0.113.1")
    error_message = output.inventory
  }
}

run "many_workers_stay_in_order" {
  variables {
    workers = 11
    slots   = 8
  }
  assert {
    condition     = endswith(output.hostlist, "worker9 slots=8\nworker10 slots=8\nworker11 slots=8")
    error_message = output.hostlist
  }
}

run "no_workers" {
  command = plan
  variables {
    workers = 0
  }
  expect_failures = [var.workers]
}

run "open_to_everybody" {
  command = plan
  variables {
    allowed_network = "0.0.0.0/0"
  }
  expect_failures = [var.allowed_network]
}

run "no_key" {
  command = plan
  variables {
    public_key = ""
  }
  expect_failures = [var.public_key]
}
