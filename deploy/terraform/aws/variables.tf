# The interface of every cloud; ../variables.tf describes and checks the values.
variable "name" { type = string }
variable "workers" { type = number }
variable "flavour_master" { type = string }
variable "flavour_worker" { type = string }
variable "image" { type = string }
variable "public_key" { type = string }
variable "allowed_network" { type = string }
variable "disk_gb" { type = number }
