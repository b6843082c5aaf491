package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/loopback"
)

// deployment is the set of measured gateways and their store.
type deployment struct {
	folder   string
	redis    *process // nil for one gateway
	gateways []*process
}

type process struct {
	command *exec.Cmd
	address string
}

// deploy starts the gateways, and Redis if there are several gateways.
func (l *load) deploy(issuer string) (d *deployment, err error) {
	d = new(deployment)
	if d.folder, err = os.MkdirTemp("", "quotaload"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	store := ""
	if l.gateways > 1 {
		address, err := loopback.FreeAddress()
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(address)
		if d.redis, err = d.start(address, "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", d.folder, "--maxmemory-policy", "noeviction"); err != nil {
			return nil, err
		}
		store = "store redis {\n\t\t\turl redis://" + address + "\n\t\t}\n\t\tstore_key " + strings.Repeat("c2VjcmV0", 8)
	}
	for n := range l.gateways {
		address, err := loopback.FreeAddress()
		if err != nil {
			return nil, err
		}
		caddyfile := filepath.Join(d.folder, fmt.Sprint("Caddyfile-", n))
		text := fmt.Sprintf(gatewayText, d.folder, n, l.limit, l.window, store, address, issuer)
		if err := os.WriteFile(caddyfile, []byte(text), 0o600); err != nil {
			return nil, err
		}
		g, err := d.start(address, l.binary, "run", "--config", caddyfile)
		if err != nil {
			return nil, err
		}
		d.gateways = append(d.gateways, g)
	}
	return d, nil
}

const gatewayText = `{
	admin off
	auto_https off
	storage file_system %s/%d
	log {
		output discard
	}
	fhir {
		issuer https://fhir.example.org
		quota load client %d %v
		%s
	}
}

http://%s {
	fhir_bearer {
		trust %s fhir
	}
	header Content-Type application/fhir+json
	respond "{\"resourceType\":\"Patient\",\"id\":\"1\"}"
}
`

func (d *deployment) start(address, binary string, arguments ...string) (*process, error) {
	p := &process{exec.Command(binary, arguments...), address}
	p.command.Env = append(os.Environ(), "XDG_DATA_HOME="+d.folder, "XDG_CONFIG_HOME="+d.folder)
	p.command.Stderr = os.Stderr
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if connection, err := net.Dial("tcp", address); err == nil {
			return p, connection.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.stop()
	return nil, errors.New(binary + " does not listen")
}

func (p *process) stop() {
	_ = p.command.Process.Signal(os.Interrupt)
	_ = p.command.Wait()
}

func (d *deployment) stop() {
	for _, g := range d.gateways {
		g.stop()
	}
	if d.redis != nil {
		d.redis.stop()
	}
	_ = os.RemoveAll(d.folder)
}

var scriptCalls = regexp.MustCompile(`cmdstat_(?:evalsha|eval|fcall):calls=(\d+)`)

// steps returns the number of store steps that Redis has executed.
func (d *deployment) steps() (steps int) {
	if d.redis == nil {
		return 0
	}
	_, port, _ := net.SplitHostPort(d.redis.address)
	text, _ := exec.Command("redis-cli", "-p", port, "info", "commandstats").Output()
	for _, found := range scriptCalls.FindAllSubmatch(text, -1) {
		n, _ := strconv.Atoi(string(found[1]))
		steps += n
	}
	return steps
}

var residentSize = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memory returns the largest resident memory of a gateway in bytes.
func (d *deployment) memory() (peak int) {
	for _, g := range d.gateways {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.command.Process.Pid))
		if found := residentSize.FindSubmatch(text); found != nil {
			n, _ := strconv.Atoi(string(found[1]))
			peak = max(peak, n<<10)
		}
	}
	return peak
}
