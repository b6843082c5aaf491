package caddymodule

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// resolveSecret replaces placeholders; one that is unknown or empty is an error,
// so that a secret that was not mounted does not become the empty one, and its
// client a public one. Line ends are those of the file it came from.
func resolveSecret(option, secret string) (string, error) {
	err := checkPlaceholders(secret)
	if err != nil {
		return "", fmt.Errorf("%s: %w", option, err)
	}
	resolved, err := caddy.NewReplacer().ReplaceOrErr(secret, true, true)
	resolved = strings.TrimRight(resolved, "\r\n")
	if err == nil && secret != "" && resolved == "" {
		err = errors.New("is empty")
	}
	if why := whyEmpty(secret); err != nil && why != nil {
		err = why
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", option, err)
	}
	return resolved, nil
}

var placeholder = regexp.MustCompile(`\{(env|file)\.([^{}]+)\}`)

// whyEmpty says of the first placeholder that stands for nothing why that is, which
// Caddy does not; nil where there is none, or one of another kind.
func whyEmpty(text string) error {
	for _, match := range placeholder.FindAllStringSubmatch(text, -1) {
		check := checkSet
		if match[1] == "file" {
			check = checkHolds
		}
		if err := check(match[2]); err != nil {
			return fmt.Errorf("%s: %w", match[0], err)
		}
	}
	return nil
}

// checkSet says why an environment variable stands for nothing, if it does.
func checkSet(name string) error {
	if value, set := os.LookupEnv(name); !set {
		return errors.New("the environment variable is not set")
	} else if value == "" {
		return errors.New("the environment variable is empty")
	}
	return nil
}

// checkHolds says why nothing can be had from a file, if nothing can.
func checkHolds(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	beginning, err := io.ReadAll(io.LimitReader(file, 4096))
	switch {
	case err != nil:
		return err
	case strings.TrimRight(string(beginning), "\r\n") == "":
		return errors.New("the file is empty")
	}
	return nil
}

// literal is a check of words that hold no placeholder: what one stands for is not
// known before Provision, and then there are no lines any more.
func literal(check func(string) error) func(string) error {
	return func(w string) error {
		if strings.Contains(w, "{") {
			return checkPlaceholders(w)
		}
		return check(w)
	}
}

var openPlaceholder = regexp.MustCompile(`\{(env|file)\.[^}]*$`)

// checkPlaceholders refuses one without its closing brace: the text itself would be the
// secret.
func checkPlaceholders(w string) error {
	if open := openPlaceholder.FindString(w); open != "" {
		return fmt.Errorf("%s has no closing brace", open)
	}
	return nil
}
