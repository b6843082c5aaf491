package deployment

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// nginx is the load balancer's configuration from docs/operate/replicas.md. It sends each request to the next gateway on a new
// connection. A request that may have reached a gateway is not sent to another one.
const nginx = `daemon off;
user root;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr error;
events {
	worker_connections 4096;
}
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	upstream gateways {
%[2]s	}
	server {
		listen %[3]s ssl http2;
		ssl_certificate %[1]s/certificate.pem;
		ssl_certificate_key %[1]s/key.pem;
		ssl_protocols TLSv1.2 TLSv1.3;
		client_max_body_size 0;
		large_client_header_buffers 8 64k;
		keepalive_requests 1000000;
		location / {
			proxy_pass http://gateways;
			proxy_http_version 1.1;
			proxy_set_header Host $http_host;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Proto https;
			proxy_buffer_size 64k;
			proxy_buffers 8 64k;
			proxy_connect_timeout 1s;
			proxy_read_timeout %[4]s;
		}
	}
}
`

// newBalancer returns an nginx process that listens at address, in front of the gateways.
func newBalancer(folder, address, readTimeout string, gateways []*Gateway, ready func() error) (*Process, error) {
	var upstream strings.Builder
	for _, g := range gateways {
		fmt.Fprintf(&upstream, "\t\tserver %s max_fails=1 fail_timeout=1s;\n", g.Address)
	}
	if name, port, err := net.SplitHostPort(address); err == nil && name != "localhost" {
		address = net.JoinHostPort("127.0.0.1", port) // the name resolves only in browsers
	}
	file := filepath.Join(folder, "nginx.conf")
	text := fmt.Sprintf(nginx, folder, upstream.String(), address, readTimeout)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return &Process{
		Name: "nginx", log: filepath.Join(folder, "nginx.log"), ready: ready,
		command: []string{"nginx", "-p", folder, "-c", file},
	}, nil
}
