package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/loopback"
)

// nginxConfig configures nginx as a cache in front of the gateway. It uses a single process so that the CPU time can be read.
const nginxConfig = `master_process off;
daemon off;
pid %[1]s/nginx.pid;
error_log stderr error;
events { worker_connections 256; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/b;
	proxy_temp_path %[1]s/p;
	fastcgi_temp_path %[1]s/f;
	uwsgi_temp_path %[1]s/u;
	scgi_temp_path %[1]s/s;
	proxy_cache_path %[1]s/cache keys_zone=cache:10m;
	server {
		listen %[2]s;
		location / {
			proxy_pass %[3]s;
			proxy_cache cache;
			proxy_cache_valid 200 1h;
			proxy_ignore_headers Cache-Control Vary;
		}
	}
}
`

// competitor is a server with the requests that it gets.
type competitor struct {
	name   string
	server *server
	paths  []string
	header http.Header
}

// measureCache measures hits in the expansion cache against other servers that send the same bytes, in the same run.
func measureCache(s settings, folder string) (err error) {
	definitions := filepath.Join(folder, "synthetic.json")
	if err := generate(definitions, 10_000); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(definitions)) }()
	now, err := startCached(s.binary, folder, "", definitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, now.stop()) }()
	gateway, rivals := now.open, now.rivals
	if s.before != "" {
		before, err := startCached(s.before, folder, "before: ", definitions)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, before.stop()) }()
		rivals = func(path string) []competitor { return slices.Concat(now.rivals(path), before.rivals(path)) }
	}
	small, err := findPageOfSize(gateway, 2_000)
	if err != nil {
		return err
	}
	large, err := findPageOfSize(gateway, 180_000)
	if err != nil {
		return err
	}
	return errors.Join(
		compareWithRespond(s, folder, gateway, small, rivals),
		compareWithNginx(s, folder, gateway, small),
		compareWithFiles(s, folder, gateway, large),
	)
}

// cachedGateway is a gateway binary with an expansion cache, started twice: without the guard (open) and with it (guarded).
type cachedGateway struct {
	name          string // prefix of the names in the result table
	open, guarded *server
	token         string
}

func startCached(binary, folder, name, definitions string) (g cachedGateway, err error) {
	g.name = name
	cached := "fhir_expand {\n\t\tcore off\n\t\tdefinitions " + definitions + "\n\t\tttl 1h\n\t}\n"
	open := site{name: "open" + strings.TrimSuffix(name, ": "), options: proxied, routes: "\t" + cached}
	if g.open, err = start(binary, folder, open); err != nil {
		return g, err
	}
	issuer, err := loopback.FreeAddress()
	if err != nil {
		return g, errors.Join(err, g.open.stop())
	}
	g.guarded, err = start(binary, folder, site{
		name:    "guarded" + strings.TrimSuffix(name, ": "),
		options: gatewayOptions + fmt.Sprintf(benchClient, "bench", "") + "\n\t}",
		routes:  "\tfhir_bearer\n\t" + cached + "}\n\nhttp://" + issuer + " {\n\tfhir_authorize",
	})
	if err != nil {
		return g, errors.Join(err, g.open.stop())
	}
	if g.token, err = clientToken("http://" + issuer); err != nil {
		return g, errors.Join(err, g.stop())
	}
	return g, nil
}

func (g cachedGateway) stop() error { return errors.Join(g.open.stop(), g.guarded.stop()) }

func (g cachedGateway) rivals(path string) []competitor {
	return []competitor{
		{g.name + "hit", g.open, []string{path}, nil},
		{g.name + "hit, with a bearer token", g.guarded, []string{path}, http.Header{"Authorization": {"Bearer " + g.token}}},
	}
}

// findPageOfSize finds a page of about the given size in bytes.
func findPageOfSize(gateway *server, size int) (path string, err error) {
	count := 1
	for range 12 {
		path = expand + query("all") + "&count=" + strconv.Itoa(count)
		r, err := http.Get(gateway.url + path)
		if err != nil {
			return "", err
		}
		body, err := drain(r)
		if err != nil || r.StatusCode != http.StatusOK {
			return "", fmt.Errorf("status %d: %w", r.StatusCode, err)
		}
		if len(body)*10 > size*9 {
			return path, nil
		}
		count = max(count+1, count*size/len(body))
	}
	return path, nil
}

func compareWithRespond(s settings, folder string, gateway *server, path string, rivals func(path string) []competitor) (err error) {
	warm, err := gateway.round(gateway.gets([]string{path}, nil), s.clients, s.round/2)
	if err != nil {
		return err
	}
	respond, err := startRespond(s.binary, folder, int(warm.size()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, respond.stop()) }()
	tag, err := entityTag(gateway.url + path)
	if err != nil {
		return err
	}
	return race(s, fmt.Sprintf("A hit of %d bytes, beside Caddy's respond", warm.size()), slices.Concat(
		[]competitor{{"respond", respond, []string{"/"}, nil}}, rivals(path),
		[]competitor{{"304", gateway, []string{path}, http.Header{"If-None-Match": {tag}}}},
	))
}

// entityTag returns the ETag of an uncompressed response.
func entityTag(url string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	_, err = drain(r)
	return r.Header.Get("ETag"), err
}

// clientToken returns an access token for the guard.
func clientToken(issuer string) (string, error) {
	p := &provider{server: &server{url: issuer}, clientID: "bench", secret: "bench-secret"}
	p.paths.token = "/oauth2/token"
	v, err := p.visit()
	if err != nil {
		return "", err
	}
	err = v.token(url.Values{"grant_type": {"client_credentials"}, "scope": {"system/*.rs"}})
	return v.access, err
}

func compareWithNginx(s settings, folder string, gateway *server, path string) (err error) {
	binary, err := exec.LookPath("nginx")
	if err != nil {
		fmt.Println("\nnginx is not installed, so it is not measured.")
		return nil
	}
	address, err := loopback.FreeAddress()
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, folder, address, gateway.url), 0o600); err != nil {
		return err
	}
	nginx, err := launch(address, exec.Command(binary, "-c", file))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nginx.stop()) }()
	return race(s, "The same hit, beside nginx", []competitor{
		{"nginx proxy_cache", nginx, []string{path}, nil},
		{"hit", gateway, []string{path}, nil},
	})
}

// compareWithFiles compares compressed cache hits with precompressed files of Caddy's file_server.
func compareWithFiles(s settings, folder string, gateway *server, path string) (err error) {
	r, err := http.Get(gateway.url + path)
	if err != nil {
		return err
	}
	body, err := drain(r)
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "www", "expansion.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, body, 0o600), writeCompressed(file+".gz", body)); err != nil {
		return err
	}
	files, err := start(s.binary, folder, site{name: "files", options: proxied, routes: "\troot " + filepath.Dir(file) + "\n\tfile_server {\n\t\tprecompressed gzip\n\t}"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.stop()) }()
	gzipped := http.Header{"Accept-Encoding": {"gzip"}}
	return race(s, fmt.Sprintf("A hit of %d bytes in gzip, beside Caddy's file_server", len(body)), []competitor{
		{"file_server, precompressed", files, []string{"/expansion.json"}, gzipped},
		{"hit", gateway, []string{path}, gzipped},
	})
}

func writeCompressed(file string, body []byte) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	_, err = z.Write(body)
	return errors.Join(err, z.Close(), f.Close())
}

// race runs rounds against each rival in turn. The first rival is the baseline of the ratios.
func race(s settings, title string, rivals []competitor) error {
	rounds := make([][]load, len(rivals))
	for n := range s.rounds + 1 {
		for k := range rivals { // rotated, because the server that is measured first appears slower
			i := (k + n) % len(rivals)
			r, length := rivals[i], s.round
			if n == 0 { // warm-up
				length = max(length/4, 100*time.Millisecond)
			}
			l, err := r.server.round(r.server.gets(r.paths, r.header), s.clients, length)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if n > 0 {
				rounds[i] = append(rounds[i], l)
			}
		}
	}
	fmt.Printf("\n%s:\n\n| server | bytes | per second | p50 | p99 | CPU per request | ratio |\n|---|--:|--:|--:|--:|--:|--:|\n", title)
	first := median(rounds[0]).perRequest()
	for i, r := range rivals {
		l := median(rounds[i])
		fmt.Printf("| %s | %d | %.0f | %s | %s | %s | **%.2f** |\n", r.name, l.size(), l.rate(),
			milliseconds(l.quantile(0.5)), milliseconds(l.quantile(0.99)), micros(l.perRequest()),
			float64(l.perRequest())/float64(max(1, first)))
	}
	return nil
}
