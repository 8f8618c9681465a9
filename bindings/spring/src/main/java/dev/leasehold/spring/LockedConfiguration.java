package dev.leasehold.spring;

import dev.leasehold.LeaseholdClient;
import org.springframework.aop.config.AopConfigUtils;
import org.springframework.aop.support.AbstractPointcutAdvisor;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.beans.factory.config.ConfigurableBeanFactory;
import org.springframework.beans.factory.support.BeanDefinitionRegistry;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.ImportBeanDefinitionRegistrar;
import org.springframework.context.annotation.Role;
import org.springframework.core.Ordered;
import org.springframework.core.type.AnnotationMetadata;

/** What {@link Locked} and {@link LockedScheduled} need: for {@link EnableLocked}, and for Spring Boot. */
@Configuration(proxyBeanMethods = false)
@Import(LockedConfiguration.Proxies.class)
@Role(BeanDefinition.ROLE_INFRASTRUCTURE)
public class LockedConfiguration {
    /**
     * The precedence of the lock. It is higher than that of {@code @Transactional}, which has the
     * lowest one by default: so the lock is acquired first, and released after the commit.
     */
    public static final int ORDER = Ordered.LOWEST_PRECEDENCE - 1000;

    /** Without AspectJ, Spring Boot makes proxies for advisors of this role only. */
    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static LockedMethods leaseholdLockedMethods(ConfigurableBeanFactory beans) {
        return new LockedMethods(beans::resolveEmbeddedValue);
    }

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static AbstractPointcutAdvisor leaseholdLockedAdvisor(
            ObjectProvider<LeaseholdClient> client, LockedMethods methods, ConfigurableBeanFactory beans) {
        // The client is opened when all is set up, not for the sake of the first bean that may need it.
        var advice = new LockedInterceptor(client::getObject, methods, beans);
        var advisor = new DefaultPointcutAdvisor(new AnnotationMatchingPointcut(null, Locked.class, true), advice);
        advisor.setOrder(ORDER);
        return advisor;
    }

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static ScheduledMethods leaseholdScheduledMethods(ConfigurableBeanFactory beans) {
        return new ScheduledMethods(beans::resolveEmbeddedValue);
    }

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static AbstractPointcutAdvisor leaseholdScheduledAdvisor(
            ObjectProvider<LeaseholdClient> client, ScheduledMethods methods) {
        var advice = new ScheduledInterceptor(client::getObject, methods);
        var pointcut = new AnnotationMatchingPointcut(null, LockedScheduled.class, true);
        var advisor = new DefaultPointcutAdvisor(pointcut, advice);
        advisor.setOrder(ORDER);
        return advisor;
    }

    /** Has Spring make proxies, if nothing else does. */
    static final class Proxies implements ImportBeanDefinitionRegistrar {
        @Override
        public void registerBeanDefinitions(AnnotationMetadata metadata, BeanDefinitionRegistry registry) {
            AopConfigUtils.registerAutoProxyCreatorIfNecessary(registry);
        }
    }
}
