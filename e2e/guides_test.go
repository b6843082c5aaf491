package e2e

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// guide is a section of a page in docs, with the addresses of a test.
type guide struct{ text string }

// readGuide reads one, and replaces pairs of old and new text in it.
func readGuide(t *testing.T, page, heading string, oldNew ...string) guide {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %s", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(section, oldNew[i]) {
			t.Fatalf("%s of %s has no %q", heading, page, oldNew[i])
		}
		section = strings.ReplaceAll(section, oldNew[i], oldNew[i+1])
	}
	return guide{section}
}

// blocks are those of a language, one after the other.
func (g guide) blocks(language string) string {
	var all []string
	for _, found := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```").FindAllStringSubmatch(g.text, -1) {
		all = append(all, found[1])
	}
	return strings.Join(all, "\n")
}

// startGuide starts a command with a gateway's folders below home, and waits until the gateway answers.
func startGuide(t *testing.T, name, home, issuer string, environ []string, command string, args ...string) *gateway {
	t.Helper()
	g := &gateway{
		issuer: issuer, admin: mustFreeAddress(t), rootFile: filepath.Join(home, "data/caddy/pki/authorities/local/root.crt"),
	}
	g.environ = append(environ, "HOME="+home, "XDG_DATA_HOME="+filepath.Join(home, "data"), "XDG_CONFIG_HOME="+filepath.Join(home, "config"), "CADDY_ADMIN="+g.admin)
	var err error
	if g.process, err = startProcess(name, g.environ, command, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.process.stop)
	return g
}

// "HAPI in ten minutes" to the letter: from a clone in an empty folder to alice's first record. The binary and HAPI itself are
// those of these tests, because the build takes minutes and HAPI's image needs a registry.
func TestGuideHAPI(t *testing.T) {
	alone(t, "the guide starts one gateway")
	h, home, address := hapiServer(t), t.TempDir(), mustFreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	source, err1 := filepath.Abs("..")
	binary, err2 := filepath.Abs(caddyBinary)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	guide := readGuide(t, "guides", "HAPI in ten minutes", "localhost:8080", strings.TrimSuffix(strings.TrimPrefix(h.base, "http://"), "/fhir"),
		"git clone https://github.com/caddy-fhir/caddy-fhir", "git clone -q "+source+" caddy-fhir", "go run ./caddymodule/build", "cp "+binary+" caddy", "=localhost:2020", "")
	_, hint, _ := strings.Cut(guide.text, "If a port is taken: `")
	hint, _, _ = strings.Cut(hint, "`")
	_, script, _ := strings.Cut(guide.blocks("sh"), "hapiproject/hapi:latest\n")
	script = strings.Replace(script, "\nFHIR_BACKEND", "\n"+strings.ReplaceAll(hint, "9443", port)+" &&\nFHIR_BACKEND", 1)
	script = "cd " + home + " && " + strings.Replace(script, "./caddy run", "exec ./caddy run", 1)
	g := startGuide(t, "guide-hapi", home, "https://"+address, nil, "bash", "-euo", "pipefail", "-c", script)
	if err := g.process.ready(g.isReady); err != nil {
		t.Fatal(err)
	}
	r := newRequest(t, http.MethodGet, g.issuer+"/fhir/Patient/ada", "")
	if got := send(t, g.client, r); got.status != http.StatusUnauthorized {
		t.Errorf("%d without a token", got.status)
	}
	r.Header.Set("Authorization", "Bearer "+g.userToken(t, "openid", "user/*.rs").AccessToken)
	if got := send(t, g.client, r).is(t, http.StatusOK); !strings.Contains(string(got.body), "Lovelace") {
		t.Errorf("%s", got.body)
	}
	launchesAda(t, g)
}

// launchesAda does in a browser what the guide says, up to the app's first record.
func launchesAda(t *testing.T, g *gateway) {
	t.Helper()
	ctx := newBrowser(t)
	perform(t, ctx, chromedp.Navigate(g.issuer+"/oauth2/launch_page"), chromedp.WaitVisible(chromedp.ID("username")))
	perform(t, soon(t, ctx), chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter), chromedp.WaitVisible("//h1[text()='Launch an app']"))
	perform(t, soon(t, ctx), chromedp.Click(chromedp.CSS("input[value=ada]")), chromedp.Click("//button[text()='Open the app']"),
		chromedp.WaitVisible(chromedp.CSS("button[value=allow]")), chromedp.Click(chromedp.CSS("button[value=allow]")),
		chromedp.WaitVisible(chromedp.CSS("#record .answers li")))
	checkStatuses(t, ctx, "record", "200", "200", "200", "200")
}

// The gateway that only answers $expand answers what the guide asks.
func TestGuideExpand(t *testing.T) {
	alone(t, "the guide starts one gateway")
	address, file := mustFreeAddress(t), filepath.Join(t.TempDir(), "Caddyfile")
	_, port, _ := net.SplitHostPort(address)
	guide := readGuide(t, "guides", "Only $expand", ":8090", ":"+port, "localhost:8080", fhirServer.address)
	writeText(t, file, "{\n\tadmin {$CADDY_ADMIN}\n}\n"+guide.blocks("caddyfile"))
	g := startGuide(t, "guide-expand", t.TempDir(), "http://"+address, nil, caddyBinary, "run", "--config", file)
	var printed string
	if err := g.process.ready(func() (err error) {
		printed, err = g.shell(t, guide.blocks("sh"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed, `"Female"`) {
		t.Error(printed)
	}
}

// shell runs commands of a guide at a gateway: caddy and jq as they are, and the admin API where the gateway has it.
func (g *gateway) shell(t *testing.T, script string) (string, error) {
	t.Helper()
	script = `caddy() { case $1 in fhir-check|validate) "$CADDY_BIN" "$@" ;; *) "$CADDY_BIN" "$1" --address="$CADDY_ADMIN" "${@:2}" ;; esac; }
` + strings.ReplaceAll(script, "localhost:2019", g.admin)
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Dir = t.TempDir()
	command.Env = append(append(command.Environ(), g.environ...), "CADDY_BIN="+caddyBinary)
	output, err := command.CombinedOutput()
	return string(output), err
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The commands of a running gateway do what the guides say: after the emergency, nothing that was given is valid.
func TestGuideCommands(t *testing.T) {
	alone(t, "backups are of one gateway")
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("jq is not installed")
	}
	g := ownGateway(t, "guide-commands", fhirServer.address)
	before, refreshable := g.userToken(t, "openid", "user/*.rs").AccessToken, g.offline(t)
	g.fhir(t, before, http.MethodGet, "Patient", "").is(t, http.StatusOK)
	for heading, want := range map[string]string{
		"Before Snowstorm or Ontoserver":  "",
		"Files, backup, restore, upgrade": "keys/",
		"Monitoring":                      `"ready":true`,
		"Keys in an emergency":            "KID",
		"Troubleshooting":                 "INTERACTION",
	} {
		guide := readGuide(t, "guides", heading)
		file := filepath.Join(t.TempDir(), "Caddyfile")
		writeExample(t, file, "localhost:8443", mustFreeAddress(t))
		script := strings.NewReplacer(" Caddyfile", " "+file, "growth-chart", "demo-app", "caddy fhir-check", "FHIR_BACKEND= caddy fhir-check").Replace(guide.blocks("sh"))
		if printed, err := g.shell(t, script); err != nil || !strings.Contains(printed, want) {
			t.Errorf("%s: %v, want %q:\n%s", heading, err, want, printed)
		}
	}
	g.fhir(t, before, http.MethodGet, "Patient", "").is(t, http.StatusUnauthorized)
	if _, err := g.refresh(t, g.demoApp(t), refreshable); err == nil {
		t.Error("a refresh token still works")
	}
	g.fhir(t, g.userToken(t, "openid", "user/*.rs").AccessToken, http.MethodGet, "Patient", "").is(t, http.StatusOK)
}

// The first app, in a browser: from its button to a patient's record.
func TestGuideFirstApp(t *testing.T) {
	alone(t, "one gateway says it all")
	app := httptest.NewServer(nil)
	defer app.Close()
	address := mustFreeAddress(t)
	app.URL = strings.Replace(app.URL, "127.0.0.1", "localhost", 1)
	guide := readGuide(t, "guides", "Your first SMART app", "http://localhost:3000/", app.URL+"/", "https://localhost:8443", "https://"+address)
	app.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, guide.blocks("html"))
	})
	gatewayAt(t, "guide-first-app", address, "", "\t\tclient demo-app {", guide.blocks("caddyfile")+"\n\t\tclient demo-app {")
	ctx := newBrowser(t)
	perform(t, ctx, chromedp.Navigate(app.URL), chromedp.Click(chromedp.CSS("button")), chromedp.WaitVisible(chromedp.ID("username")))
	perform(t, soon(t, ctx), chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter), chromedp.WaitVisible("//h1[text()='Choose a patient']"))
	perform(t, soon(t, ctx), chromedp.Click(chromedp.CSS("#results button")), chromedp.WaitVisible(`//pre[contains(., '"resourceType": "Patient"')]`))
}

// The sandbox by hand: nora signs in by the printed address, and the app reads her record. Then a service begins an export.
func TestGuideSandbox(t *testing.T) {
	alone(t, "the page has one gateway")
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("jq is not installed")
	}
	app := readGuide(t, "sandbox", "Register your first SMART app").blocks("caddyfile")
	g := ownGateway(t, "guide-sandbox", "", "\t\tclient demo-app {", app+"\n\t\tclient demo-app {")
	address := strings.TrimPrefix(g.issuer, "https://")
	byHand, export := readGuide(t, "sandbox", "By hand", "localhost:8443", address), readGuide(t, "sandbox", "Export in bulk", "localhost:8443", address)
	start, exchange, found := strings.Cut(byHand.blocks("sh"), "\ncode=…")
	if !found {
		t.Fatalf("the page has no code: %s", byHand.text)
	}
	printed, err := g.shell(t, start+"\necho $verifier")
	link, verifier, _ := strings.Cut(strings.TrimSpace(printed), "\n")
	if err != nil || verifier == "" {
		t.Fatalf("%v: %s", err, printed)
	}
	code := g.newPerson(t).walk(t, link, "http://localhost:3000/callback", url.Values{"username": {"nora"}, "password": {"nora-demo-password"}}).Query().Get("code")
	printed, err = g.shell(t, "verifier="+verifier+" code="+code+exchange+"\n"+export.blocks("sh"))
	if err != nil || !strings.Contains(printed, `"patient":"p01"`) || !strings.Contains(printed, `"subject":{"reference":"Patient/p01"`) || !strings.Contains(printed, "content-location: ") {
		t.Errorf("%v: %s", err, printed)
	}
}

// authlibFolder has Authlib, as .ci/run installs it.
const authlibFolder = "python/packages"

// Authlib, with the key and the class of the recipe: from no key to records, and again with a second assertion.
func TestGuideAuthlib(t *testing.T) {
	alone(t, "the recipe has one gateway")
	packages, err1 := filepath.Abs(authlibFolder)
	_, err2 := os.Stat(packages)
	if err := errors.Join(err1, err2); err != nil {
		t.Skipf("%v: pip install --target e2e/%s Authlib==1.9.10 requests==2.34.2", err, authlibFolder)
	}
	home, address := t.TempDir(), mustFreeAddress(t)
	root := filepath.Join(home, "data/caddy/pki/authorities/local/root.crt")
	guide := readGuide(t, "apps", "A service in Python, with a key", "https://localhost:8443", "https://"+address, "/srv/keys/", home+"/",
		"python3 -m venv venv && venv/bin/pip install Authlib requests\n", "", "venv/bin/python", "python3", "~/.local/share/caddy/pki/authorities/local/root.crt", root)
	keys, run, found := strings.Cut(guide.blocks("sh"), "\nREQUESTS_CA_BUNDLE")
	if !found {
		t.Fatalf("the recipe does not run its program: %s", guide.text)
	}
	shell := func(script string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		command.Dir, command.Env = home, append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return string(output)
	}
	shell(keys)
	file := filepath.Join(home, "Caddyfile")
	writeExample(t, file, "localhost:8443", address, "\t\tclient demo-app {", guide.blocks("caddyfile")+"\n\t\tclient demo-app {")
	g := startGuide(t, "guide-authlib", home, "https://"+address, []string{"FHIR_BACKEND="}, caddyBinary, "run", "--config", file)
	if err := g.process.ready(g.isReady); err != nil {
		t.Fatal(err)
	}
	program := guide.blocks("python")
	last := program[strings.LastIndex(program, "\n"):]
	writeText(t, filepath.Join(home, "feed.py"), program+"\nfeed.token = {**feed.token, 'expires_at': 1}"+last+"\n")
	printed := shell("REQUESTS_CA_BUNDLE" + run)
	if counts := strings.Fields(printed); len(counts) != 2 || counts[0] == "0" || counts[0] != counts[1] {
		t.Errorf("printed %q, want the number of observations twice", printed)
	}
}
