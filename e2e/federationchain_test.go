package e2e

import (
	"crypto/x509"
	"net/url"
	"os"
	"testing"
)

// A gateway signs people in at another gateway, which has a certificate issued by its own CA.
func TestGatewayBehindGateway(t *testing.T) {
	address := mustFreeAddress(t)
	upstream := federatedGateway(t, "gateway-upstream", withLoopbackIP(mustFreeAddress(t)), []string{
		"\t\tclient downstream {\n\t\t\tsecret downstream-secret\n\t\t\tredirect_uri https://" + address + "/oauth2/callback/upstream\n\t\t}",
	})
	// Go servers that are started from now on also trust the certificates in this file.
	t.Setenv("SSL_CERT_FILE", upstream.rootFile)
	g := federatedGateway(t, "gateway-downstream", address, []string{
		idpBlock("upstream", upstream.issuer, "downstream", "downstream-secret",
			"name \"Gateway Upstream\"", "fhir_user alice Practitioner/alice-from-upstream"),
	})
	alice := g.newPerson(t)
	alice.client.Transport = newClient(rootsOf(t, g, upstream)).Transport

	signedIn := alice.signInBy(t, "upstream", url.Values{"username": {userName}, "password": {userPassword}})
	signedIn.check(t, g, upstream.issuer, userName, claims{
		Name: "Alice Adams", PreferredUsername: userName, Email: "alice@example.org", EmailVerified: true,
		FHIRUser: g.issuer + "/fhir/R4/Practitioner/alice-from-upstream",
	})
}

// rootsOf returns a pool with the CAs of several gateways, for one browser.
func rootsOf(t *testing.T, gateways ...*gateway) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	for _, g := range gateways {
		root, err := os.ReadFile(g.rootFile)
		if err != nil {
			t.Fatal(err)
		}
		if !roots.AppendCertsFromPEM(root) {
			t.Fatalf("no certificate in %s", g.rootFile)
		}
	}
	return roots
}
