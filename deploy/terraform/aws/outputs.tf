output "master" {
  value = { public = aws_instance.master.public_ip, private = aws_instance.master.private_ip }
}

output "workers" {
  value = aws_instance.worker[*].private_ip
}
