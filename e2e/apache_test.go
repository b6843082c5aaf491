package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const apacheModules = "/usr/lib/apache2/modules/"

// startApache runs Debian's Apache with mod_auth_openidc as a client of the gateway. Apache serves one file, with the signed-in
// user in response headers.
func startApache(t *testing.T, g *gateway, address string) {
	t.Helper()
	for _, needed := range []string{"/usr/sbin/apache2", apacheModules + "mod_auth_openidc.so"} {
		if _, err := os.Stat(needed); err != nil {
			t.Skipf("Apache with mod_auth_openidc is not installed: %v", err)
		}
	}
	folder, err := os.MkdirTemp("", "apache") // readable by Apache's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	root, err := os.ReadFile(g.rootFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"root.crt": string(root), "www/index.html": "<!doctype html><title>Guarded</title>", "apache.conf": apacheConfig(folder, g.issuer, address),
	} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	running, err := startProcess("apache", nil, "/usr/sbin/apache2", "-X", "-f", filepath.Join(folder, "apache.conf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.stop)
	if err := running.ready(func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func apacheConfig(folder, issuer, address string) string {
	var modules strings.Builder
	for _, name := range []string{"authn_core", "authz_core", "authz_user", "dir", "headers", "auth_openidc"} {
		fmt.Fprintf(&modules, "LoadModule %s_module %smod_%s.so\n", name, apacheModules, name)
	}
	return fmt.Sprintf(`
ServerName localhost
ServerRoot %[1]s
Listen %[3]s
LoadModule mpm_prefork_module %[4]smod_mpm_prefork.so
%[5]s
User www-data
Group www-data
PidFile %[1]s/apache.pid
ErrorLog /dev/stderr
LogLevel warn auth_openidc:info
DocumentRoot %[1]s/www
DirectoryIndex index.html
OIDCProviderMetadataURL %[2]s/.well-known/openid-configuration
OIDCCABundlePath %[1]s/root.crt
OIDCClientID apache
OIDCClientSecret secret-of-apache
OIDCProviderTokenEndpointAuth client_secret_basic
OIDCRedirectURI http://%[3]s/callback
OIDCDefaultLoggedOutURL http://%[3]s/signed-out
OIDCCryptoPassphrase of-this-test-alone
OIDCScope "openid profile email"
OIDCPKCEMethod S256
OIDCRemoteUserClaim email
OIDCSessionType server-cache
OIDCUnAuthAction auth true
<Location />
	AuthType openid-connect
	Require valid-user
	Header always set X-Signed-In "expr=%%{REMOTE_USER}"
	Header always set X-Name "%%{OIDC_CLAIM_name}e"
</Location>
<Location /signed-out>
	Require all granted
</Location>
`, folder, issuer, address, apacheModules, modules.String())
}

// startApacheClient starts a gateway, and Apache as its client. site is Apache's URL.
func startApacheClient(t *testing.T) (g *gateway, site string) {
	t.Helper()
	address := mustFreeAddress(t)
	g = startTestGateway(t, "gateway-apache", fhirServer.address, "client demo-service {", fmt.Sprintf(`client apache {
			secret secret-of-apache
			redirect_uri http://%[1]s/callback
			post_logout_redirect_uri http://%[1]s/signed-out
			backchannel_logout_uri http://%[1]s/callback?logout=backchannel
		}
		client demo-service {`, address))
	startApache(t, g, address)
	return g, "http://" + address + "/"
}

// signInToApache requests the site and signs in at the gateway. It returns the URL of the authorization request.
func (p *person) signInToApache(t *testing.T, site string) string {
	t.Helper()
	away := p.get(t, site).location(t).String()
	if !strings.HasPrefix(away, p.gateway.issuer+"/oauth2/authorize?") {
		t.Fatalf("Apache sends to %s", away)
	}
	back := p.submit(t, p.openSignIn(t, away), userPassword).location(t)
	if end := p.get(t, back.String()).location(t); end.String() != site {
		t.Fatalf("after the sign-in Apache sends to %s", end)
	}
	return away
}

// Debian's mod_auth_openidc works as a relying party: the user signs in, Apache receives the claims, and the user signs out.
func TestApache(t *testing.T) {
	g, site := startApacheClient(t)
	p := g.newPerson(t)
	away := p.signInToApache(t, site)
	page := p.get(t, site).is(t, http.StatusOK)
	if user, name := page.header.Get("X-Signed-In"), page.header.Get("X-Name"); user != "alice@example.org" || name != "Alice Adams" {
		t.Errorf("Apache lets in %q, %q", user, name)
	}

	t.Run("signed in already, another start needs no page", func(t *testing.T) {
		fresh := p.get(t, away).location(t)
		if fresh.Query().Get("code") == "" {
			t.Errorf("sent to %s", fresh)
		}
	})
	t.Run("Apache signs out here, too", func(t *testing.T) {
		logout := p.get(t, site+"callback?logout="+url.QueryEscape(site+"signed-out")).location(t)
		if !strings.HasPrefix(logout.String(), g.issuer+"/oauth2/logout?") {
			t.Fatalf("Apache signs out at %s", logout)
		}
		if end := p.get(t, logout.String()).location(t); end.String() != site+"signed-out" {
			t.Errorf("after that at %s", end)
		}
		p.openSignIn(t, away) // no user is signed in
	})
}

// Signing out at the gateway also signs the user out at Apache (OpenID Connect Back-Channel Logout 1.0).
func TestApacheBackChannelLogout(t *testing.T) {
	g, site := startApacheClient(t)
	p := g.newPerson(t)
	p.signInToApache(t, site)
	p.get(t, site).is(t, http.StatusOK)

	logout, err := url.Parse(g.issuer + "/oauth2/logout")
	if err != nil {
		t.Fatal(err)
	}
	form := openForm(t, logout, string(p.get(t, logout.String()).is(t, http.StatusOK).body))
	r := newRequest(t, http.MethodPost, form.action, form.hidden.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", g.issuer)
	send(t, p.client, r).is(t, http.StatusOK)
	err = g.process.ready(func() error {
		if status := p.get(t, site).status; status != http.StatusFound {
			return fmt.Errorf("Apache still lets in: status %d", status)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
