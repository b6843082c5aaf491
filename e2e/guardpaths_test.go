package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// spellings is the number of path variants to send.
const spellings = 2000

// HAPI interprets each path that the guard forwards in the same way as the guard. With an unrestricted token, the response
// equals HAPI's own. With a patient's token, the response contains no other patients' data.
func (g *guardTest) testPaths(t *testing.T) {
	first, other := g.world.Patients[0], g.world.Patients[1]
	doctor := g.world.Find(first, "Practitioner.doctor").Reference()
	unrestricted := g.token(t, guardHolder{"user/*.rs", "", doctor})
	as := g.attackers(t, readers(g.world))[0]
	random := rand.New(rand.NewPCG(1, 2))
	var paths []string
	for _, owner := range []byte{first, other} {
		for _, path := range []string{"Patient.self", "Observation.pulse", "Binary.own", "Device.own"} {
			reference := g.world.Find(owner, path).Reference()
			paths = append(paths, reference, reference, reference+"/_history/1", reference+"/_history")
		}
		patient := g.world.Patient(owner)
		paths = append(paths, patient+"/Observation", patient+"/$everything", "Observation?subject="+patient, "Observation?patient="+patient+"&_summary=true")
	}
	answered := map[int]int{}
	for range spellings {
		path := "/fhir/" + respellPath(random, paths[random.IntN(len(paths))])
		direct := g.raw(t, g.server.base, path, "")
		for _, token := range []string{unrestricted, as.token} {
			got := g.raw(t, g.base, path, token)
			answered[got.status]++
			checkSpelling(t, path, got, direct, token == unrestricted, as)
		}
	}
	t.Logf("answers: %v", answered)
}

// checkSpelling compares the gateway's response with HAPI's own.
func checkSpelling(t *testing.T, path string, got, direct httpResponse, unrestricted bool, as *attackHolder) {
	t.Helper()
	if got.status >= http.StatusInternalServerError {
		t.Errorf("%q is answered with %d", path, got.status)
	}
	if got.status != http.StatusOK {
		return
	}
	returned, there := resourcesIn(got.body), resourcesIn(direct.body)
	for _, reference := range returned {
		if !unrestricted && !as.allowed[reference] && !strings.HasPrefix(reference, "Bundle/") {
			t.Errorf("%q shows %s", path, reference)
		}
	}
	if is := referenceOf(got.body); !strings.HasPrefix(is, "Bundle/") && !slices.Contains(there, is) {
		t.Errorf("%q shows %s, HAPI itself %v with %d", path, is, there, direct.status)
	}
}

// respellPath applies one or two random changes to a path.
func respellPath(random *rand.Rand, path string) string {
	for range 1 + random.IntN(5)/4 {
		at := random.IntN(len(path) + 1)
		before, after := path[:at], path[at:]
		switch random.IntN(9) {
		case 0, 1, 2:
			if after != "" {
				path = before + fmt.Sprintf([]string{"%%%02x", "%%%02X", "%%25%02x", "%%u00%02x"}[random.IntN(4)], after[0]) + after[1:]
			}
		case 3:
			if after != "" {
				path = before + strings.ToUpper(after[:1]) + after[1:]
			}
		case 4:
			path = strings.ToLower(path[:1]) + path[1:]
		default:
			insert := []string{"/", "//", "./", "../", "%2f", "%2e/", "%2e%2e/", ";x=y", ";", "\\", "%5c", "%00", "%20", "+", "%c0%af", "%ef%bc%8f", "%e2%80%ae", "?", "%3f", "%23", "#", "|", "%09", "%0d%0a", "%", "%zz", "..;/", "Patient/../", "%252e", "\xff", "é", "&", "="}
			path = before + insert[random.IntN(len(insert))] + after
		}
	}
	return path
}

// raw sends the path unchanged, which net/http does not allow.
func (g *guarded) raw(t *testing.T, base, path, token string) httpResponse {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	var c net.Conn
	if u.Scheme == "https" {
		c, err = tls.Dial("tcp", u.Host, &tls.Config{RootCAs: g.gateway.roots})
	} else {
		c, err = net.Dial("tcp", u.Host)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%sAccept: application/fhir+json\r\nConnection: close\r\n\r\n", path, u.Host, token); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return httpResponse{} // the connection was closed without a response
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return httpResponse{response.StatusCode, response.Header, body}
}
