# A master and workers on a cloud; docs/reference_architecture.md shows how. Another cloud is a folder
# with the variables and outputs of aws/; put its name and its provider here.
terraform {
  required_version = ">= 1.7"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region
}

module "machines" {
  source = "./aws"

  name            = var.name
  workers         = var.workers
  flavour_master  = var.flavour_master
  flavour_worker  = var.flavour_worker
  image           = var.image
  public_key      = var.public_key
  allowed_network = var.allowed_network
  disk_gb         = var.disk_gb
}
