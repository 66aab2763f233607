variable "name" {
  description = "Prefix of the names of everything that is made"
  type        = string
  default     = "horovod"
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,30}$", var.name))
    error_message = "name: lower-case letters, digits and -, at most 31."
  }
}

variable "region" {
  description = "Where the machines are, as the cloud calls it"
  type        = string
  default     = "eu-central-1"
}

variable "workers" {
  description = "Number of machines besides the master"
  type        = number
  default     = 3
  validation {
    condition     = var.workers >= 1 && var.workers <= 1000 && floor(var.workers) == var.workers
    error_message = "workers: a whole number from 1 to 1000."
  }
}

variable "slots" {
  description = "Ranks of each machine"
  type        = number
  default     = 1
  validation {
    condition     = var.slots >= 1 && floor(var.slots) == var.slots
    error_message = "slots: a whole number from 1 on."
  }
}

variable "flavour_master" {
  description = "Kind of machine of the master, as the cloud calls it"
  type        = string
  default     = "c7i.2xlarge"
}

variable "flavour_worker" {
  description = "Kind of machine of the workers"
  type        = string
  default     = "c7i.2xlarge"
}

variable "image" {
  description = "Image of the machines: Debian 12 or later, or Ubuntu 22.04 or later; empty: the newest of Debian 12"
  type        = string
  default     = ""
}

variable "user" {
  description = "The user that the image lets in by ssh"
  type        = string
  default     = "admin"
}

variable "public_key" {
  description = "Public ssh key that opens the machines, such as the text of ~/.ssh/id_ed25519.pub"
  type        = string
  validation {
    condition     = can(regex("^(ssh|ecdsa)-", var.public_key))
    error_message = "public_key: the text of a public key of ssh."
  }
}

variable "allowed_network" {
  description = "Addresses from which the master is reached by ssh, such as 203.0.113.7/32; nothing else is open"
  type        = string
  validation {
    condition     = can(cidrhost(var.allowed_network, 0)) && !endswith(var.allowed_network, "/0")
    error_message = "allowed_network: a network such as 203.0.113.7/32, not the whole internet."
  }
}

variable "disk_gb" {
  description = "Size of the disk of each machine; the master's holds the shared folder"
  type        = number
  default     = 100
  validation {
    condition     = var.disk_gb >= 20
    error_message = "disk_gb: at least 20."
  }
}
