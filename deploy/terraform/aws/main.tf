# Machines in a network of their own, close to each other. Only ssh to the master is open; workers reach the internet for
# packages and are reached from the master.
terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

data "aws_ami" "debian" {
  count       = var.image == "" ? 1 : 0
  most_recent = true
  owners      = ["136693071363"] # Debian
  filter {
    name   = "name"
    values = ["debian-12-amd64-*"]
  }
}

locals {
  image = var.image != "" ? var.image : data.aws_ami.debian[0].id
  tags  = { Name = var.name }
}

resource "aws_vpc" "this" {
  cidr_block           = "10.0.0.0/16"
  enable_dns_hostnames = true
  tags                 = local.tags
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
  tags   = local.tags
}

resource "aws_subnet" "this" {
  vpc_id                  = aws_vpc.this.id
  cidr_block              = "10.0.0.0/20"
  map_public_ip_on_launch = true
  tags                    = local.tags
}

resource "aws_route_table" "this" {
  vpc_id = aws_vpc.this.id
  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.this.id
  }
  tags = local.tags
}

resource "aws_route_table_association" "this" {
  subnet_id      = aws_subnet.this.id
  route_table_id = aws_route_table.this.id
}

resource "aws_security_group" "inside" {
  name        = "${var.name}-inside"
  description = "Everything between the machines, and out"
  vpc_id      = aws_vpc.this.id
  ingress {
    description = "ranks, ssh and the shared folder"
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    self        = true
  }
  egress {
    description = "packages"
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
  tags = local.tags
}

resource "aws_security_group" "master" {
  name        = "${var.name}-master"
  description = "ssh to the master"
  vpc_id      = aws_vpc.this.id
  ingress {
    description = "ssh"
    from_port   = 22
    to_port     = 22
    protocol    = "tcp"
    cidr_blocks = [var.allowed_network]
  }
  tags = local.tags
}

resource "aws_key_pair" "this" {
  key_name   = var.name
  public_key = var.public_key
}

resource "aws_placement_group" "this" {
  name     = var.name
  strategy = "cluster"
}

resource "aws_instance" "master" {
  ami                    = local.image
  instance_type          = var.flavour_master
  key_name               = aws_key_pair.this.key_name
  subnet_id              = aws_subnet.this.id
  vpc_security_group_ids = [aws_security_group.inside.id, aws_security_group.master.id]
  placement_group        = aws_placement_group.this.name
  tags                   = { Name = "${var.name}-master" }
  metadata_options {
    http_tokens = "required"
  }
  root_block_device {
    volume_size = var.disk_gb
    encrypted   = true
  }
}

resource "aws_instance" "worker" {
  count                  = var.workers
  ami                    = local.image
  instance_type          = var.flavour_worker
  key_name               = aws_key_pair.this.key_name
  subnet_id              = aws_subnet.this.id
  vpc_security_group_ids = [aws_security_group.inside.id]
  placement_group        = aws_placement_group.this.name
  tags                   = { Name = "${var.name}-worker${count.index + 1}" }
  metadata_options {
    http_tokens = "required"
  }
  root_block_device {
    volume_size = var.disk_gb
    encrypted   = true
  }
}
