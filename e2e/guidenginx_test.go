package e2e

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// nginxAround is the configuration around a server block, as in Debian's nginx.conf, with files of the test.
const nginxAround = `daemon off;
user root;
pid FOLDER/nginx.pid;
error_log stderr error;
events {}
http {
	access_log off;
	client_body_temp_path FOLDER/body;
	proxy_temp_path FOLDER/proxy;
	fastcgi_temp_path FOLDER/fastcgi;
	uwsgi_temp_path FOLDER/uwsgi;
	scgi_temp_path FOLDER/scgi;
`

// TestGuideNginx runs nginx and the gateway as in docs/guides/nginx.md. alice can sign in at the public address. A client
// cannot forge the client address in the audit log.
func TestGuideNginx(t *testing.T) {
	skipOnReplicas(t, "nginx stands before several already")
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("nginx is not installed")
	}
	folder, address, inner := nginxFolder(t), mustFreeAddress(t), mustFreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	_, innerPort, _ := net.SplitHostPort(inner)
	guide := readGuide(t, "guides/nginx", "https://fhir.hospital.example", "https://"+address, "http://fhir.hospital.example:8000", "http://localhost:"+innerPort,
		"localhost:8080", fhirServer.address, "127.0.0.1:8000", "127.0.0.1:"+innerPort, "listen 443", "listen 127.0.0.1:"+port,
		"server_name fhir.hospital.example", "server_name localhost", "/etc/ssl/fhir.hospital.example", folder+"/localhost")
	g := startGuide(t, "guide-nginx-gateway", folder, "https://"+address, nil, caddyBinary, "run", "--config", withAlice(t, folder, guide.blocks("caddyfile"), "\tauto_https off\n"))
	file := filepath.Join(folder, "nginx.conf")
	writeText(t, file, strings.ReplaceAll(nginxAround, "FOLDER", folder)+guide.blocks("nginx")+"\n}\n")
	nginx, err := startProcess("guide-nginx", nil, "nginx", "-p", folder, "-c", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nginx.stop)
	g.rootFile = folder + "/localhost.pem"
	if err := nginx.ready(g.isReady); err != nil {
		t.Fatal(err)
	}
	g.fhir(t, g.userToken(t, "openid", "user/*.rs").AccessToken, http.MethodGet, "Patient", "").is(t, http.StatusOK)
	r := newRequest(t, http.MethodPost, g.issuer+"/oauth2/token", "grant_type=client_credentials&client_id=nobody")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	send(t, g.client, r).is(t, http.StatusUnauthorized)
	log, err := os.ReadFile(g.process.log)
	if err != nil || !strings.Contains(string(log), `"outcome":"invalid_client"`) || strings.Contains(string(log), `"address":"203.0.113.9"`) {
		t.Errorf("%v: the audit trail has no refusal at the client's own address:\n%s", err, log)
	}
}

// nginxFolder returns a new folder with a certificate for localhost.
func nginxFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	certificate, key := (*certificateAuthority)(nil).sign(t, "localhost").pem(t)
	writeText(t, filepath.Join(folder, "localhost.pem"), string(certificate))
	writeText(t, filepath.Join(folder, "localhost.key"), string(key))
	return folder
}

// withAlice writes a Caddyfile with additional global options and with the example's alice and demo-app in its fhir block.
func withAlice(t *testing.T, folder, caddyfile, options string) string {
	t.Helper()
	example, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	part := func(from, to string) string {
		_, after, _ := strings.Cut(string(example), from)
		before, _, _ := strings.Cut(after, to)
		return from + before
	}
	people := part("\t\tuser alice {", "\t\t# a patient,") + part("\t\tclient demo-app {", "\t\tclient demo-confidential")
	caddyfile = strings.Replace(caddyfile, "\tfhir {\n", "\tadmin {$CADDY_ADMIN}\n"+options+"\tfhir {\n"+people, 1)
	file := filepath.Join(folder, "Caddyfile")
	writeText(t, file, caddyfile)
	return file
}
