package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/oauth2"
)

// localDomain is a domain with subdomains that all resolve to this machine, in browsers and in the tests' HTTP clients. Sites
// use it if they cannot be on localhost: an app that gets the response without a click, and pages on several hosts of one site.
const localDomain = ".hospital.internal"

// newBrowser starts a headless Chromium with a new profile.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.IgnoreCertErrors,           // Caddy's CA isn't in any trust store
		chromedp.Flag("disable-quic", true), // HTTP/3 rejects certificates of unknown CAs anyway
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP *"+localDomain+" 127.0.0.1"),
		chromedp.Flag("hide-scrollbars", false), // show scrollbars, because they affect the layout
		chromedp.WSURLReadTimeout(time.Minute),
	)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	perform(t, ctx) // starts the browser; the context must have no deadline
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// step is an action in the browser.
type step = chromedp.Action[chromedp.Void]

func perform(t *testing.T, ctx context.Context, steps ...step) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// readValue runs an action in the browser and returns its result.
func readValue[T any](t *testing.T, ctx context.Context, what chromedp.Action[T]) T {
	t.Helper()
	value, err := chromedp.Run(ctx, what)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// appServer serves the redirect URI of Caddyfile.example and sends each request to the channel.
func appServer(t *testing.T) <-chan *http.Request {
	t.Helper()
	landed := make(chan *http.Request, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/callback", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>The app</title><h1>Back in the app</h1>"))
		landed <- r
	})
	server := &http.Server{Addr: "localhost:3000", Handler: mux}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("port 3000 must be free, because Caddyfile.example's redirect URI names it: %v", err)
		}
	})
	return landed
}

// A user signs in with only the keyboard. The first attempt has a wrong password.
func TestBrowserSignIn(t *testing.T) {
	ctx, landed := newBrowser(t), appServer(t)
	app, verifier := example.demoApp(t, "openid", "profile"), oauth2.GenerateVerifier()
	app.RedirectURL = callback
	perform(t, ctx,
		chromedp.Navigate(app.AuthCodeURL("from the browser", oauth2.S256ChallengeOption(verifier))),
		chromedp.WaitVisible(chromedp.CSS("form")),
		chromedp.KeyEvent(userName+kb.Tab+"wrong"+kb.Enter), // the user name field has the focus
		chromedp.WaitVisible(chromedp.CSS("[role=alert]")),
	)
	if typed := readValue(t, ctx, chromedp.Value(chromedp.ID("username"))); typed != userName {
		t.Errorf("after a wrong password the name is %q, want %q again", typed, userName)
	}
	perform(t, ctx,
		chromedp.KeyEvent(userPassword+kb.Enter), // the password field has the focus
		chromedp.WaitVisible("//h1[text()='Back in the app']"),
	)
	query := (<-landed).URL.Query()
	if query.Get("state") != "from the browser" {
		t.Errorf("state %q", query.Get("state"))
	}
	if _, err := app.Exchange(example.context(t), query.Get("code"), oauth2.VerifierOption(verifier)); err != nil {
		t.Errorf("the browser's code: %v", err)
	}

	t.Run("no script can read the cookies", func(t *testing.T) {
		perform(t, ctx, chromedp.Navigate(example.issuer+"/.well-known/openid-configuration"))
		if cookies := readValue(t, ctx, chromedp.Evaluate[string]("document.cookie")); cookies != "" {
			t.Errorf("document.cookie is %q", cookies)
		}
	})
	t.Run("signed in, a click is enough", func(t *testing.T) {
		ctx := withShortTimeout(t, ctx)
		perform(t, ctx, chromedp.Navigate(app.AuthCodeURL("again")), chromedp.WaitVisible("//h1[text()='Continue to Demo App?']"))
		select {
		case early := <-landed:
			t.Errorf("landed without a click at %s", early.URL)
		default:
		}
		perform(t, ctx, chromedp.Click("//button[text()='Continue']"), chromedp.WaitVisible("//h1[text()='Back in the app']"))
		query := (<-landed).URL.Query()
		if query.Get("state") != "again" {
			t.Errorf("landed with %s", query.Encode())
		}
		if _, err := app.Exchange(example.context(t), query.Get("code")); err != nil {
			t.Errorf("the code of the click: %v", err)
		}
	})
}

// look opens a page with the given screen width in pixels and color scheme.
func look(width int64, scheme, address string) step {
	return chromedp.Steps(screen(width, scheme), chromedp.Navigate(address))
}

// screen sets the screen width in pixels and the color scheme.
func screen(width int64, scheme string) step {
	screen := []chromedp.EmulateViewportOption{chromedp.EmulateLandscape}
	if width < 600 {
		screen = []chromedp.EmulateViewportOption{chromedp.EmulatePortrait, chromedp.EmulateMobile, chromedp.EmulateTouch}
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	return chromedp.Steps(
		chromedp.EmulateViewport(width, 800, screen...),
		chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			if _, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media); err != nil {
				return err
			}
			// Emulate a focused window, so that the focus is visible.
			_, err := cdp.Call(ctx, tab, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
			return err
		}),
	)
}

// screenshot saves the visible part of the page to out/name.png.
func screenshot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	png := readValue(t, ctx, chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join(outFolder, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
