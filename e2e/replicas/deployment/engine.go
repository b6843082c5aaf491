package deployment

import (
	"fmt"
	"net"
	"os/exec"
	"time"
)

// Engine is the store of the gateways.
type Engine interface {
	// Directives returns the lines for the fhir block that configure the store.
	Directives() string
	// Addresses returns the server addresses in the directives.
	Addresses() []string
	// Servers returns the server processes. The master or the single server comes first.
	Servers() []*Process
	// Stop stops the servers.
	Stop()
}

// Engines contains the names of all engines.
var Engines = []string{"memory", "file", "redis", "sentinel", "postgres"}

// StartEngine starts an engine that stores its files in folder.
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

// Missing returns the programs that are required by an engine or nginx but are not installed.
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

// keyed is the directive for storing signing keys and registered clients in the store.
const keyed = "\t\tstore_key {env.FHIR_STORE_KEY}\n"

// local is a store for a single gateway: memory or file.
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

// checkListening returns a function that returns nil if the address accepts connections.
func checkListening(address string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}
