package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddyserver/xcaddy"
)

const configFile = "xcaddy.json"

// readConfig reads an [xcaddy.Builder] from a JSON file. Unknown fields are an error, lest a misspelt one be ignored.
func readConfig(file string) (*xcaddy.Builder, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	builder, err := decodeConfig(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return builder, nil
}

func decodeConfig(r io.Reader) (*xcaddy.Builder, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	builder := new(xcaddy.Builder)
	if err := decoder.Decode(builder); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return builder, nil
}

// resolve makes relative replacements absolute. xcaddy's command does so, but its Builder would take them as relative to
// its temporary folder.
func resolve(builder *xcaddy.Builder, root string) {
	for i, r := range builder.Replacements {
		if strings.HasPrefix(r.New.String(), ".") {
			builder.Replacements[i] = xcaddy.NewReplace(r.Old.String(), filepath.Join(root, r.New.String()))
		}
	}
}
