package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
)

func main() {
	output := flag.String("o", "", "file to write (default: caddy, beside go.mod)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *output, flag.Args()); err != nil {
		log.Fatalf("build: %v", err)
	}
}

func run(ctx context.Context, output string, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	toolchain, err := findToolchain(ctx)
	if err != nil {
		return err
	}
	root := filepath.Dir(toolchain.Module)
	if output, err = outputFile(output, root); err != nil {
		return err
	}
	called, err := os.Getwd()
	if err != nil {
		return err
	}
	// xcaddy reads other paths of its configuration from the working directory.
	if err := os.Chdir(root); err != nil {
		return err
	}
	builder, err := readConfig(filepath.Join(root, configFile))
	if err != nil {
		return err
	}
	resolve(builder, root)
	p, err := readPins(ctx, root)
	if err != nil {
		return err
	}
	p.version = sourceVersion(ctx, root)
	setVersion(builder, p.module, p.version)
	steps := newProgress(os.Stderr)
	steps.say("download modules: some 900 MB the first time")
	if err := download(ctx, root); err != nil {
		return err
	}
	environ, err := toolchain.offline(os.Environ())
	if err != nil {
		return err
	}
	builder.Env = verbose(environ)
	builder.OnStep = steps.step
	if err := builder.Build(ctx, output); err != nil {
		return fmt.Errorf("%w\n%s", err, steps.output)
	}
	if err := p.checkBinary(output); err != nil {
		// Nobody should run a binary that may contain other code.
		return errors.Join(err, os.Remove(output))
	}
	fmt.Fprintf(os.Stderr, "built %s\n", shown(output, called))
	return nil
}

// shown is the path of a file, relative to a folder that contains it.
func shown(file, from string) string {
	relative, err := filepath.Rel(from, file)
	if err != nil || !filepath.IsLocal(relative) {
		return file
	}
	return "." + string(filepath.Separator) + relative
}

// outputFile is the absolute path of the file to write.
func outputFile(output, root string) (string, error) {
	if output != "" {
		return filepath.Abs(output)
	}
	name := "caddy"
	if target := os.Getenv("GOOS"); target == "windows" || target == "" && runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(root, name), nil
}
