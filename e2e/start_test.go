package e2e

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Limits that include a margin for a busy machine. The goals are 1 s and 120 MB. The log contains the measured values.
const (
	startBound  = 5 * time.Second
	memoryBound = 120 << 20
)

// A gateway that starts with an empty storage folder creates certificates and keys, and loads the R4 definitions, within the
// limits.
func TestStart(t *testing.T) {
	var fastest time.Duration
	var g *gateway
	for i := range 3 {
		if g != nil {
			g.process.stop()
		}
		g = startTestGateway(t, "gateway-start-"+strconv.Itoa(i), fhirServer.address)
		discovery := time.Since(g.started)
		g.expand(t, g.serviceToken(t), gender).is(t, http.StatusOK)
		expansion := time.Since(g.started)
		t.Logf("start %d: discovery after %v, $expand with a new token after %v", i, discovery, expansion)
		if fastest == 0 || expansion < fastest {
			fastest = expansion
		}
	}
	if fastest > startBound {
		t.Errorf("the first $expand took %v, want less than %v", fastest, startBound)
	}
	t.Run("log", func(t *testing.T) { checkFirstLines(t, g) })
	t.Run("TLS without a name", func(t *testing.T) { checkNameless(t, g) })
	t.Run("resident memory", func(t *testing.T) { checkMemory(t, g) })
}

// checkFirstLines checks that the first log lines contain the URL to open and no warning about the example.
func checkFirstLines(t *testing.T, g *gateway) {
	err := g.process.ready(func() error {
		log, err := os.ReadFile(g.process.log)
		switch text := string(log); {
		case err != nil:
			return err
		case !strings.Contains(text, `"open":"`+g.issuer+`/oauth2/launch_page"`):
			return errors.New("the output does not contain the address to open")
		case strings.Contains(text, `"level":"warn"`), strings.Contains(text, `"level":"error"`), strings.Count(text, "\n") > 15:
			t.Errorf("logged:\n%s", text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkNameless connects without a server name, as Java does for localhost.
func checkNameless(t *testing.T, g *gateway) {
	raw, err := net.Dial("tcp", strings.TrimPrefix(g.issuer, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	nameless := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // if ServerName is empty, no name is sent
	if err := nameless.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := nameless.ConnectionState().PeerCertificates[0].VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
}

// checkMemory checks the gateway's memory during a few hundred expansions of small and large value sets.
func checkMemory(t *testing.T, g *gateway) {
	before, _ := g.memory(t)
	token := g.serviceToken(t)
	answered := 0
	for _, name := range []string{
		"administrative-gender", "marital-status", "observation-status", "condition-clinical", "contact-point-system",
		"name-use", "address-type", "encounter-status", "request-priority", "service-type", "resource-types",
		"data-types", "defined-types", "languages", "observation-category", "security-labels", "v3-ActCode",
	} {
		for filter := range 20 {
			query := url.Values{"url": {"http://hl7.org/fhir/ValueSet/" + name}, "count": {strconv.Itoa(10 + filter)}}
			if strings.HasPrefix(name, "v3-") {
				query.Set("url", "http://terminology.hl7.org/ValueSet/"+name)
			}
			if filter > 0 {
				query.Set("filter", string(rune('a'+filter)))
			}
			if g.fhir(t, token, http.MethodGet, "ValueSet/$expand?"+query.Encode(), "").status == http.StatusOK {
				answered++
			}
		}
	}
	after, peak := g.memory(t)
	t.Logf("resident: %d MB at first, %d MB after %d expansions, %d MB at most", before>>20, after>>20, answered, peak>>20)
	if answered < 200 {
		t.Errorf("only %d expansions were answered", answered)
	}
	if after > memoryBound {
		t.Errorf("%d MB, want at most %d", after>>20, memoryBound>>20)
	}
}

// memory returns the current and the maximum resident memory of the gateway in bytes.
func (g *gateway) memory(t *testing.T) (current, peak int) {
	t.Helper()
	skipOnReplicas(t, "memory of one process")
	status, err := os.ReadFile("/proc/" + strconv.Itoa(g.process.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	kilobytes := func(name string) int {
		_, rest, _ := strings.Cut(string(status), name+":")
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return kilobytes("VmRSS") << 10, kilobytes("VmHWM") << 10
}
