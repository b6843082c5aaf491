package examples

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const composeFolder = "../../docs/examples/compose"

// A composition contains the parts of a compose file that the examples use.
type composition struct {
	Name     string
	Gateway  any `json:"x-gateway"`
	Services map[string]service
	Networks map[string]struct {
		Internal bool
		IPAM     struct {
			Config []struct {
				Subnet netip.Prefix
				Range  netip.Prefix `json:"ip_range"`
			}
		}
	}
	Volumes map[string]any
}

type service struct {
	Image, Build, User, Restart         string
	Entrypoint, Command, Ports, Volumes []string
	Tmpfs                               []string
	Environment                         map[string]string
	Networks                            serviceNetworks
	NetworkMode                         string   `json:"network_mode"`
	DependsOn                           any      `json:"depends_on"`
	ReadOnly                            bool     `json:"read_only"`
	CapDrop                             []string `json:"cap_drop"`
	SecurityOpt                         []string `json:"security_opt"`
	StopGracePeriod                     string   `json:"stop_grace_period"`
}

// serviceNetworks maps the networks of a service to its static addresses.
type serviceNetworks map[string]struct {
	Address string `json:"ipv4_address"`
}

// UnmarshalJSON also accepts a list of network names.
func (a *serviceNetworks) UnmarshalJSON(text []byte) error {
	*a = serviceNetworks{}
	var names []string
	if json.Unmarshal(text, &names) != nil {
		type plain serviceNetworks
		return json.Unmarshal(text, (*plain)(a))
	}
	for _, name := range names {
		(*a)[name] = serviceNetworks{}[name]
	}
	return nil
}

func (s service) isGateway() bool { return s.Image == "caddy-fhir" }

// readCompose parses the compose file of an example. Unknown fields are errors.
func readCompose(t *testing.T, example string) composition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(composeFolder, example, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composition
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// In each compose file, references resolve, published ports are on loopback, and only the gateway can reach the FHIR server.
func TestComposeFiles(t *testing.T) {
	folders, err := os.ReadDir(composeFolder)
	if err != nil || len(folders) != 4 {
		t.Fatal(err, folders)
	}
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			c := readCompose(t, folder.Name())
			for name, s := range c.Services {
				checkService(t, c, folder.Name(), name, s)
			}
			if folder.Name() != "terminology" { // the only example without a FHIR server
				checkNeighbours(t, c)
			}
		})
	}
}

func checkService(t *testing.T, c composition, example, name string, s service) {
	for _, port := range s.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:") {
			t.Errorf("%s is reached from elsewhere: %s", name, port)
		}
	}
	for network, at := range s.Networks {
		if _, ok := c.Networks[network]; !ok {
			t.Errorf("%s: no network %s", name, network)
		}
		if address, err := netip.ParseAddr(at.Address); err == nil && !isReserved(c, network, address) {
			t.Errorf("%s: Docker may have given %s to another", name, address)
		}
	}
	for _, mount := range s.Volumes {
		source, _, _ := strings.Cut(mount, ":")
		if strings.HasPrefix(source, "./") {
			if _, err := os.Stat(filepath.Join(composeFolder, example, source)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if _, ok := c.Volumes[source]; !ok {
			t.Errorf("%s: no volume %s", name, source)
		}
	}
	if !s.isGateway() {
		return
	}
	if _, err := os.Stat(filepath.Join(composeFolder, example, s.Build, "Dockerfile")); err != nil {
		t.Error(err)
	}
	if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.SecurityOpt) != 1 {
		t.Errorf("%s may do more than it has to", name)
	}
}

// isReserved reports whether Docker assigns an address only to services that request it.
func isReserved(c composition, network string, address netip.Addr) bool {
	pools := c.Networks[network].IPAM.Config
	return len(pools) == 1 && pools[0].Subnet.Contains(address) && pools[0].Range.IsValid() && !pools[0].Range.Contains(address)
}

// checkNeighbours checks that HAPI's networks are internal and contain only the gateways and the service that stores the
// patient.
func checkNeighbours(t *testing.T, c composition) {
	hapi := c.Services["hapi"]
	if len(hapi.Ports) > 0 || len(hapi.Networks) == 0 {
		t.Errorf("HAPI is reached by %v, %v", hapi.Ports, hapi.Networks)
	}
	if hapi.Environment["hapi.fhir.use_apache_address_strategy"] != "true" {
		t.Error("HAPI's links are not the gateway's")
	}
	for network := range hapi.Networks {
		if !c.Networks[network].Internal {
			t.Errorf("HAPI's network %s leads elsewhere", network)
		}
		for name, s := range c.Services {
			shares := slices.ContainsFunc(slices.Collect(maps.Values(c.Services)), func(other service) bool {
				return other.isGateway() && other.NetworkMode == "service:"+name
			})
			if _, ok := s.Networks[network]; ok && name != "hapi" && name != "patient" && !s.isGateway() && !shares {
				t.Errorf("%s reaches HAPI", name)
			}
		}
	}
}

// The realm that Keycloak imports is configured as the gateway's identity provider.
func TestComposeRealm(t *testing.T) {
	var realm struct {
		Realm   string
		Groups  []struct{ Name string }
		Clients []struct {
			ClientID, Secret string
			RedirectURIs     []string
		}
	}
	text, err := os.ReadFile(filepath.Join(composeFolder, "keycloak/realm.json"))
	if err == nil {
		err = json.Unmarshal(text, &realm)
	}
	caddyfile, err2 := os.ReadFile(filepath.Join(composeFolder, "keycloak/Caddyfile"))
	if err != nil || err2 != nil || len(realm.Groups) != 2 || len(realm.Clients) != 1 {
		t.Fatal(err, err2, realm)
	}
	client := realm.Clients[0]
	for _, want := range []string{
		"issuer http://localhost:8090/realms/" + realm.Realm + "\n", "client_id " + client.ClientID + "\n", "client_secret " + client.Secret + "\n",
		"idp hospital group " + realm.Groups[0].Name + " ", "idp hospital group " + realm.Groups[1].Name + " ",
		"issuer " + strings.TrimSuffix(client.RedirectURIs[0], "/oauth2/callback/hospital") + "\n",
	} {
		if !strings.Contains(string(caddyfile), want) {
			t.Errorf("the Caddyfile has no %q", want)
		}
	}
}
