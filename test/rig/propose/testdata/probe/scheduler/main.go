// Command scheduler prints what kube-scheduler says about itself.
package main

import (
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"probe/facts"
)

func main() { facts.Print(facts.Of(app.NewSchedulerCommand())) }
