package deployment

import (
	"fmt"
	"net"
	"os/exec"
	"time"
)

// Engine is the store of the gateways.
type Engine interface {
	// Directives returns the store's lines of the fhir block.
	Directives() string
	// Addresses returns the addresses in the directives.
	Addresses() []string
	// Servers returns the processes, the master or single server first.
	Servers() []*Process
	// Stop stops the servers.
	Stop()
}

// Engines are the names of the engines.
var Engines = []string{"memory", "file", "redis", "sentinel", "postgres"}

// StartEngine starts an engine with its files in a folder.
func StartEngine(name, folder string, network *Network) (Engine, error) {
	switch name {
	case "memory", "file":
		return local(name), nil
	case "redis":
		return startRedis(folder, network)
	case "sentinel":
		return startSentinel(folder, network)
	case "postgres":
		return startPostgres(folder, network)
	}
	return nil, fmt.Errorf("%q is none of %v", name, Engines)
}

// Missing returns the programs that an engine or nginx needs and that are not installed.
func Missing(engine string) (programs []string) {
	needed := map[string][]string{
		"redis": {"redis-server"}, "sentinel": {"redis-server", "redis-sentinel"}, "postgres": {postgresProgram("postgres"), "setpriv"},
	}[engine]
	for _, program := range append(needed, "nginx") {
		if _, err := exec.LookPath(program); err != nil {
			programs = append(programs, program)
		}
	}
	return programs
}

// keyed is the line that stores signing keys and registered clients in the store.
const keyed = "\t\tstore_key {env.FHIR_STORE_KEY}\n"

// local is a store of a single gateway.
type local string

func (l local) Directives() string {
	if l == "file" {
		return "\t\tstore file {\n\t\t\tmax_entries 10000000\n\t\t}\n"
	}
	return "\t\tstore memory\n"
}

func (local) Addresses() []string { return nil }
func (local) Servers() []*Process { return nil }
func (local) Stop()               {}

// checkListening returns a function that checks that an address accepts connections.
func checkListening(address string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}
