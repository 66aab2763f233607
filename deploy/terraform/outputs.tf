locals {
  master  = module.machines.master
  workers = { for index, address in module.machines.workers : format("worker%d", index + 1) => address }
  # Sorted as numbers: worker2 before worker10.
  names = [for index in range(length(module.machines.workers)) : format("worker%d", index + 1)]
}

output "master" {
  description = "Where the master is reached: ssh USER@MASTER"
  value       = "${var.user}@${local.master.public}"
}

output "hostlist" {
  description = "HOSTLIST, the file for horovodrun --hostfile"
  value       = join("\n", [for name in concat(["master"], local.names) : "${name} slots=${var.slots}"])
}

output "inventory" {
  description = "Inventory for Ansible: terraform output -raw inventory > inventory.ini"
  value = join("\n", concat(
    ["[masters]", "master ansible_host=${local.master.public} address=${local.master.private}", "", "[workers]"],
    [for name in local.names : "${name} ansible_host=${local.workers[name]} address=${local.workers[name]}"],
    [
      "", "[workers:vars]",
      "ansible_ssh_common_args=-o ProxyJump=${var.user}@${local.master.public}",
      "", "[all:vars]", "ansible_user=${var.user}", "slots=${var.slots}", "",
    ],
  ))
}
